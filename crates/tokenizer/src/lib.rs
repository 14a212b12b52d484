//! Tokenizers described by GGUF metadata.
//!
//! A GGUF file carries its tokenizer as keys: the token texts, their types, scores or merges, and
//! names for the rest. [`Tokenizer::from_gguf`] builds one from them for the two kinds that
//! language models use: SentencePiece's byte-pair encoding (`tokenizer.ggml.model` = `llama`) and
//! byte-level byte-pair encoding (`gpt2`) with the pre-tokenizers that llama.cpp names. Both give
//! llama.cpp's ids; the rules follow its `src/llama-vocab.cpp` and `src/unicode.cpp`.
//!
//! ```text
//! text ─► added tokens cut out ─► gpt2: pre-tokenizer's words ─► bytes ─┐
//!         (added.rs)              (pre_tokenizer.rs)     (byte_level.rs) ├─► pairs merged ─► ids
//!                                 llama: characters ────────────────────┘   (merge.rs)
//! ids ─► bytes of each ─► complete UTF-8 only (decoder.rs) ─► text
//! ```
//!
//! ```no_run
//! use rustorch_gguf::Gguf;
//! use rustorch_tokenizer::{EncodeOptions, Tokenizer};
//!
//! let tokenizer = Tokenizer::from_gguf(&Gguf::open("model.gguf")?.metadata)?;
//! let ids = tokenizer.encode("Once upon a time", EncodeOptions { add_special: true, parse_special: false });
//! assert_eq!(tokenizer.decode(&ids).trim_start(), "Once upon a time");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`BpeTrainer`] makes a vocabulary of byte-level BPE out of texts, which [`TextPieces`] reads.
//!
//! Unicode classes are those of the regular-expression library (Unicode 16); llama.cpp's tables are
//! those of Unicode 15.1, so characters that Unicode 16 added may be split differently.

mod added;
mod byte_level;
mod decoder;
mod error;
mod merge;
mod pieces;
mod pre_tokenizer;
mod sentence_piece;
mod special;
mod splitter;
mod tokenizer;
mod trainer;
mod vocab;

pub use decoder::StreamDecoder;
pub use error::TokenizerError;
pub use pieces::{TextError, TextPieces};
pub use tokenizer::{EncodeOptions, Tokenizer};
pub use trainer::{BpeTrainer, BpeVocab};
