use std::fmt;
use std::path::{Path, PathBuf};

use rustorch_files::FileError;
use rustorch_tensor::RusTorchError;

/// Why there is no sample, or no loader. Its text is one line that says what is wrong, and what to do.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// Any of the failures below, in a file whose path is known.
    #[error("{}: {error}", path.display())]
    InFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: Box<DataError>,
    },
    /// Tensors cannot be made, or do not fit each other.
    #[error(transparent)]
    Tensor(#[from] RusTorchError),
    /// A file of tensors is damaged, or cannot be read.
    #[error(transparent)]
    Tensors(#[from] FileError),
    /// A file cannot be read.
    #[error("cannot be read: {0}")]
    Io(#[from] std::io::Error),
    /// A file is not what it should be.
    #[error("{0}")]
    Damaged(String),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

/// The line of [`Display`](fmt::Display), as Rust prints this form of an error that `main` returns.
impl fmt::Debug for DataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl DataError {
    /// Says which file the failure is in, unless it says so itself.
    pub(crate) fn in_file(path: &Path, error: impl Into<Self>) -> Self {
        match error.into() {
            error @ (Self::InFile { .. } | Self::Tensors(FileError::File { .. })) => error,
            error => Self::InFile {
                path: path.to_owned(),
                error: Box::new(error),
            },
        }
    }
}

/// What data gives, or why it does not.
pub type DataResult<T> = Result<T, DataError>;

/// Reads a file, of whose errors it is the place.
pub(crate) fn reading<T>(
    path: &Path,
    read: impl FnOnce(&rustorch_files::Source) -> DataResult<T>,
) -> DataResult<T> {
    let source = rustorch_files::Source::open(path)?;
    read(&source).map_err(|error| DataError::in_file(path, error))
}
