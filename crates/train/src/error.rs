//! Errors of training.

use std::io;
use std::path::{Path, PathBuf};

use rustorch_errors::ErrorKind;

use rustorch_data::DataError;
use rustorch_files::FileError;
use rustorch_gguf::{GgufError, io_advice};
use rustorch_llm::LlmError;
use rustorch_tensor::RusTorchError;
use rustorch_tokenizer::TokenizerError;

/// The reason why a model cannot be trained. Its text is one line with the problem, the place, and
/// advice.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainError {
    /// A computation failed.
    #[error(transparent)]
    Tensor(#[from] RusTorchError),
    /// A file of tensors cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// A model file cannot be read or written.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// A model cannot be loaded.
    #[error(transparent)]
    Llm(#[from] LlmError),
    /// A vocabulary cannot be made or read.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// Samples cannot be made.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A text cannot be used.
    #[error("{}: {problem}", path.display())]
    Text {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: TokenizerError,
    },
    /// The system reported an error.
    #[error("{}: cannot {action}: {error}{}", path.display(), io_advice(error))]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The attempted action.
        action: &'static str,
        /// Why not.
        error: io::Error,
    },
    /// A setting is invalid.
    #[error("{0}")]
    Setting(String),
    /// A checkpoint belongs to another run.
    #[error("{}: {problem}", path.display())]
    Checkpoint {
        /// The file or folder.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// The loss is infinite or NaN.
    #[error("the loss of step {step} is {loss}: lower --lr, or clip gradients with --clip")]
    Diverged {
        /// The step, from 1.
        step: u64,
        /// Its loss.
        loss: f64,
    },
}

impl TrainError {
    /// The kind, for programs that react to it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Tensor(error) => error.kind(),
            Self::File(error) => error.kind(),
            Self::Gguf(error) => error.kind(),
            Self::Llm(error) => error.kind(),
            Self::Tokenizer(error) | Self::Text { problem: error, .. } => error.kind(),
            Self::Data(error) => error.kind(),
            Self::Io { error, .. } => error.into(),
            Self::Checkpoint { .. } => ErrorKind::Format,
            Self::Setting(_) | Self::Diverged { .. } => ErrorKind::Argument,
        }
    }

    /// Returns whether weights were lost with a device, so that the run must resume from a checkpoint.
    pub fn is_data_lost(&self) -> bool {
        matches!(self, Self::Tensor(error) if error.is_data_lost())
    }

    /// A function that maps errors of the system.
    pub(crate) fn io(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Io {
            path: path.to_owned(),
            action,
            error,
        }
    }
}
