//! Tokenizers described by GGUF metadata.
//!
//! A GGUF file holds its tokenizer as keys: token texts, types, scores or merges, and names for the
//! rest. [`Tokenizer::from_gguf`] builds one from them, of any kind that llama.cpp has. All return
//! llama.cpp's ids; the rules follow its `src/llama-vocab.cpp` and `src/unicode.cpp`.
//!
//! | `tokenizer.ggml.model` | tokenizer |
//! | --- | --- |
//! | `llama` | SentencePiece's byte-pair encoding |
//! | `gpt2` | byte-pair encoding, with the pre-tokenizers that llama.cpp names |
//! | `gemma4` | the same of characters, with U+2581 for spaces |
//! | `hybriddna` | the same, and tokens of six bases between `<dna>` and `</dna>` |
//! | `whitespace` | the same of what stands between white space |
//! | `bert` | WordPiece |
//! | `t5` | SentencePiece's unigram model |
//! | `rwkv` | always the longest token |
//! | `plamo2` | the best sum of scores, with bytes for what is in no token |
//! | `test` | a hash of five bytes each, for llama.cpp's generated models |
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
//! Unicode classes are those of the regular-expression library (Unicode 16). llama.cpp's tables are
//! those of Unicode 15.1, so characters that are new in Unicode 16 may be split differently.

mod added;
mod algorithm;
mod bpe;
mod byte_level;
mod charsmap;
mod chunks;
mod cuts;
mod decoder;
mod error;
mod hybrid_dna;
mod kind;
mod merge;
mod normalizer;
mod pieces;
mod plamo;
mod pre_tokenizer;
mod rwkv;
mod sentence_piece;
mod special;
mod splitter;
mod tokenizer;
mod trainer;
mod trie;
mod unicode;
mod unigram;
mod vocab;
mod whitespace;
mod word_piece;

pub use decoder::StreamDecoder;
pub use error::TokenizerError;
pub use pieces::TextPieces;
pub use special::FillTokens;
pub use tokenizer::{EncodeOptions, Tokenizer};
pub use trainer::{BpeTrainer, BpeVocab};
