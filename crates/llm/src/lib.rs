//! Language models from GGUF files: load one with [`Model`], run it with [`Session`].
//!
//! A text that is shown as it comes:
//!
//! ```
//! use std::io::{Write, stdout};
//! use std::ops::ControlFlow;
//!
//! use rustorch_gguf::Gguf;
//! use rustorch_llm::sampler::{SamplerChain, SamplerConfig};
//! use rustorch_llm::{Event, GenerateOptions, LlmError, Model, Session, SessionOptions, generate};
//! use rustorch_tokenizer::EncodeOptions;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/classics-13m-Q4_K_M.gguf");
//! let model = Model::load(Gguf::open(path)?)?;
//! let tokenizer = model.tokenizer()?;
//! let options = EncodeOptions { add_special: true, ..EncodeOptions::default() };
//! let prompt = tokenizer.encode("Alice was beginning to", options);
//!
//! let mut sampler = SamplerChain::new(&SamplerConfig { seed: Some(7), ..SamplerConfig::default() })?;
//! let options = GenerateOptions { max_tokens: Some(8), ..GenerateOptions::default() };
//! // On the best devices of this machine; they have the weights before the first token is asked for.
//! let mut session = Session::new(&model, &rustorch_tensor::runtime(), SessionOptions::default())?;
//! session.load(&options.selection(&model, &mut sampler), |_done, _of| ())?;
//!
//! let mut text = tokenizer.decoder();
//! let mut show = |event| {
//!     if let Event::Token(id) = event {
//!         print!("{}", text.push(id)); // whole characters
//!         let _ = stdout().flush();
//!     }
//!     Ok::<_, LlmError>(ControlFlow::Continue(())) // `Break` ends the text
//! };
//! let made = generate(&mut session, &prompt, &mut sampler, &options, &mut show)?;
//! assert_eq!(made.ids.len(), 8);
//! # Ok(())
//! # }
//! ```

mod adapters;
pub mod arch;
mod backend;
mod blocks;
mod config;
mod error;
mod f32_hybrid;
mod file_tensor;
mod generate;
pub mod golden;
mod keys;
mod kv_cache;
mod loading;
mod model;
mod perplexity;
mod preset;
pub mod quantize;
mod rotary;
pub mod sampler;
mod selection;
mod session;
mod session_file;
mod speculation;
mod step;
mod weights;

pub use adapters::{AdapterFile, AdapterKind, ControlLayers};
pub use backend::{BackendConfig, BackendDevice, GpuLayers, LayerBackend, select_backend};
pub use config::Config;
pub use error::LlmError;
pub use f32_hybrid::{F32Comparison, F32Measured, F32Pass, F32Variant, F32Workload};
pub use generate::{Event, GenerateOptions, Generated, Speed, Stop, generate, generate_with};
pub use kv_cache::{LayerCache, cache_bytes};
pub use model::{Model, ModelOptions, load_tokenizer};
pub use perplexity::{Perplexity, perplexity};
pub use preset::{Preset, UnknownPreset};
pub use rotary::{RopeKind, RopeOptions};
pub use selection::{Scores, Selection};
pub use session::{Session, SessionOptions, tokens_processed};
pub use speculation::{
    Draft, ModelDraft, NgramDraft, Speculation, SpeculationOptions, SpeculationStats,
};
pub use weights::Weights;
