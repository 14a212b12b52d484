use std::fmt;
use std::panic::Location;
use std::path::{Path, PathBuf};

use rustorch_errors::ErrorKind;

use rustorch_files::FileError;
use rustorch_runtime::Call;
use rustorch_tensor::RusTorchError;

/// The reason why a sample or loader could not be made. Its text is one line with the problem, and
/// advice.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// Any of the errors below, with the file's path.
    #[error("{}: {error}", path.display())]
    InFile {
        /// The file.
        path: PathBuf,
        /// The problem.
        error: Box<DataError>,
    },
    /// Tensors could not be made, or do not match.
    #[error(transparent)]
    Tensor(#[from] RusTorchError),
    /// A file of tensors is damaged or cannot be read.
    #[error(transparent)]
    Tensors(#[from] FileError),
    /// A file cannot be read.
    #[error("cannot be read: {0}")]
    Io(#[from] std::io::Error),
    /// A file is damaged or of another format.
    #[error("{0}")]
    Damaged(String),
    /// Anything else, in a call of this crate.
    #[error("{call}: {error}")]
    Call {
        /// The function, and where it was called.
        call: Call,
        /// The problem.
        error: Box<DataError>,
    },
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
    /// The kind, for programs that react to it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::InFile { error, .. } | Self::Call { error, .. } => error.kind(),
            Self::Tensor(error) => error.kind(),
            Self::Tensors(error) => error.kind(),
            Self::Io(error) => error.into(),
            Self::Damaged(_) => ErrorKind::Format,
            Self::Other(_) => ErrorKind::Argument,
        }
    }

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

/// The result of data functions.
pub type DataResult<T> = Result<T, DataError>;

/// Adds the caller's place to an error that has none.
#[track_caller]
pub(crate) fn called<T>(method: &'static str, result: DataResult<T>) -> DataResult<T> {
    called_at(method, Location::caller(), result)
}

/// Adds a place to an error that has none.
pub(crate) fn called_at<T>(
    method: &'static str,
    location: &'static Location<'static>,
    result: DataResult<T>,
) -> DataResult<T> {
    let location = Some(location);
    result.map_err(|error| match error {
        DataError::Other(_) => DataError::Call {
            call: Call { method, location },
            error: Box::new(error),
        },
        error => error,
    })
}

/// Reads a file, and adds its path to errors.
pub(crate) fn reading<T>(
    path: &Path,
    read: impl FnOnce(&rustorch_files::Source) -> DataResult<T>,
) -> DataResult<T> {
    let source = rustorch_files::Source::open(path)?;
    read(&source).map_err(|error| DataError::in_file(path, error))
}

#[cfg(test)]
pub(crate) mod tests {
    /// Fails unless an error begins with the line of a test, and ends so.
    #[track_caller]
    pub(crate) fn assert_told(error: &str, end: &str) {
        let file = std::panic::Location::caller().file();
        let has_place = error.contains(&format!(" at {file}:"));
        assert!(has_place && error.ends_with(end), "{error}");
    }
}
