//! Language models from GGUF files: load one with [`Model`], run it with [`Session`].

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
