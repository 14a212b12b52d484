//! Language models from GGUF files.

pub mod sampler;
