//! Language models from GGUF files.
