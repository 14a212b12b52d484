//! Training language models: text becomes tokens, tokens train a decoder, and that becomes a GGUF file.
//!
//! ```text
//! texts ─► corpus.rs: a vocabulary, and the tokens on disk ─► windows.rs: samples of the context's length
//! conversations.rs: samples of which only answers are learnt ──┤
//!                                                               │
//! decoder.rs: the model, by the names of GGUF ─► training.rs: steps, validation, checkpoints
//!                                                               │
//!                                        export.rs: a GGUF file   curve.rs: losses as a picture
//! ```
//!
//! What a run computes follows from its settings and texts alone: a run that was interrupted and goes on from its last
//! checkpoint has, on the same device, the losses of one that was not, to the bit.

// What `#[derive(Module)]` writes names this crate as users do.
extern crate rustorch_nn as rustorch;

mod checkpoint;
mod conversations;
mod corpus;
mod curve;
mod decoder;
mod error;
mod export;
pub mod hugging_face;
mod schedule;
mod settings;
mod training;
mod windows;

pub use checkpoint::Checkpoints;
pub use conversations::Conversations;
pub use corpus::{Corpus, Prepared, Text, Tokens};
pub use curve::loss_curve;
pub use decoder::Decoder;
pub use error::TrainError;
pub use export::{gguf, metadata, save, save_adapter};
pub use schedule::Schedule;
pub use settings::{ModelSize, Precision, Settings};
pub use training::{History, Samples, Step, Training};
pub use windows::Windows;
