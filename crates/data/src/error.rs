//! What can go wrong with data.

use rustorch_tensor::RusTorchError;

/// Why there is no sample, or no loader. Its text is one line that says what is wrong, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// Tensors cannot be made, or do not fit each other.
    #[error(transparent)]
    Tensor(#[from] RusTorchError),
    /// A file cannot be read.
    #[error("cannot be read: {0}")]
    Io(#[from] std::io::Error),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

/// What data gives, or why it does not.
pub type DataResult<T> = Result<T, DataError>;
