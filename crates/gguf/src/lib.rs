//! Reading and writing GGUF model files.
