//! Constrained decoding: masks that exclude a language model's invalid tokens.
//!
//! A [`Grammar`] describes the text: JSON by a schema, a GBNF grammar as in llama.cpp, a regular
//! expression, or a grammar in llguidance's Lark. A [`Vocabulary`] has the texts of a model's
//! tokens. Together they make a [`Constraint`]. It returns the allowed tokens before each step, and
//! accepts the chosen one.
//!
//! ```text
//! JSON schema ── checked, references resolved (schema/) ──┐
//! Lark ───────────────────────────────────────────────────┴─► llguidance ─┐
//! GBNF ── parsed, checked (gbnf/) ─┐                                      ├─► Constraint ─► TokenMask
//! regular expression ──────────────┴─► Network ─► automaton/ ─────────────┘        ▲
//! Tokenizer ─► bytes of each token ─► Vocabulary (tries) ──────────────────────────┘
//! ```
//!
//! ```no_run
//! use rustorch_gguf::Gguf;
//! use rustorch_grammar::{Grammar, Vocabulary};
//! use rustorch_tokenizer::Tokenizer;
//!
//! let tokenizer = Tokenizer::from_gguf(&Gguf::open("model.gguf")?.metadata)?;
//! let vocabulary = Vocabulary::new(&tokenizer)?;
//! let grammar = Grammar::JsonSchema(r#"{"type": "integer", "minimum": 1}"#.to_owned());
//! let mut constraint = grammar.constrain(&vocabulary)?;
//! let mut logits = vec![0.0; tokenizer.vocab_size()];
//! constraint.mask()?.apply(&mut logits);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Nothing here fails open: a constraint that this crate cannot enforce is an error when it is made. If the
//! engine gives up later, all later calls return that error.

mod automaton;
mod constraint;
mod error;
mod gbnf;
mod grammar;
mod graph;
mod network;
mod schema;
mod trie;
mod vocabulary;

pub use constraint::{Constraint, TokenMask};
pub use error::GrammarError;
pub use grammar::Grammar;
pub use vocabulary::{Piece, Vocabulary};
