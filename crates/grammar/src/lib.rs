//! Text in a given form: masks that leave a language model no other tokens.
//!
//! A [`Grammar`] says what the text may be: JSON of a schema, a grammar as llama.cpp writes them
//! (GBNF), a regular expression, or a grammar in llguidance's Lark. A [`Vocabulary`] is what the
//! tokens of a model stand for. Together they make a [`Constraint`], which is asked before each
//! token which ones may come, and told which one came.
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
//! Nothing here fails open: what a grammar asks for and this crate cannot hold is an error when
//! the constraint is made, and should the engine give up on the way, every later question to the
//! constraint is answered by that error.

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
