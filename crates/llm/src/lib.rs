//! Language models from GGUF files: load one with [`Model`], run it with [`Session`].
//!
//! This example streams a text:
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
//! // On this machine's devices, which get the weights before the first token.
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
mod arch;
mod assignment;
mod decoder;
mod diffusion;
mod encoder;
pub mod engine;
mod error;
mod f32_hybrid;
mod file_tensor;
mod generate;
pub mod golden;
pub mod hugging_face;
mod keys;
mod kv_cache;
mod loading;
mod memory;
mod model;
mod network;
mod perplexity;
mod placement;
mod preset;
pub mod quantize;
mod recorder;
mod rotary;
mod row_split;
pub mod sampler;
mod selection;
mod session;
mod session_file;
pub mod spec;
mod speculation;
mod step;
mod weights;

pub use adapters::{AdapterFile, AdapterKind, ControlLayers, LowRank};
pub use arch::architectures;
pub use assignment::{BackendConfig, LayerBackend, LayerExperts, TensorBackend, select_backend};
pub use diffusion::{Diffusion, DiffusionOptions};
pub use encoder::{Encoder, EncoderOptions, Scaling, cosine};
pub use engine::Engine;
pub use error::LlmError;
pub use f32_hybrid::{F32Comparison, F32Measured, F32Pass, F32Variant, F32Workload};
pub use generate::{Event, GenerateOptions, Generated, Speed, Stop, generate, generate_with};
pub use kv_cache::LayerCache;
pub use memory::{BackendDevice, MemoryNeeds, free_in_all, free_memory};
pub use model::{Model, ModelOptions, load_tokenizer};
pub use network::Network;
pub use perplexity::{Perplexity, perplexity};
pub use placement::{GpuLayers, Placement, PlacementOptions, TensorRule};
pub use preset::{Preset, UnknownPreset, described};
pub use rotary::{RopeKind, RopeOptions};
pub use row_split::RowSplit;
pub use selection::{Scores, Selection};
pub use session::{Session, SessionOptions, tokens_processed};
pub use speculation::{
    Draft, ModelDraft, NgramDraft, Speculation, SpeculationOptions, SpeculationStats,
};
pub use weights::Weights;

pub use rustorch_gguf::Gguf;
pub use rustorch_tokenizer::{EncodeOptions, Tokenizer};
