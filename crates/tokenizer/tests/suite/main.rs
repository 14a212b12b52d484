//! Tests of the tokenizers as others use them.

mod common;
mod decoding;
mod hostile;
mod kinds;
mod llama_cpp;
mod special_tokens;
mod training;
