//! Tokenizers described by GGUF metadata.
