//! Training language models: text becomes tokens, tokens train a decoder, and that becomes a GGUF file.
//!
//! ```text
//! texts ─► corpus.rs: a vocabulary, and the tokens on disk ─► windows.rs: samples of the context's length
//! conversations.rs: samples whose answers alone count ─────────┤
//!                                                               │
//! decoder.rs: the model, by the names of GGUF ─► training.rs: steps, validation, checkpoints
//!                                                               │
//!                                        export.rs: a GGUF file   curve.rs: losses as a picture
//! ```
//!
//! A run's results depend only on its settings and texts. On the same device, a resumed run has the
//! losses of an uninterrupted run, to the bit.

// `#[derive(Module)]` writes code that names this crate as users do.
extern crate rustorch_nn as rustorch;

mod checkpoint;
mod conversations;
mod corpus;
mod curve;
mod decoder;
mod error;
mod export;
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
pub use export::{gguf, save, save_adapter};
pub use schedule::Schedule;
pub use settings::{ModelSize, Precision, TrainingSettings};
pub use training::{History, Samples, StepMetrics, Training};
pub use windows::Windows;
