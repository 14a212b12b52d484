//! Language models from GGUF files.

pub mod quantize;
pub mod sampler;
