//! All errors of reading and running a model.

use std::path::{Path, PathBuf};

use rustorch_errors::ErrorKind;

use rustorch_dispatch::CallError;
use rustorch_files::FileError;
use rustorch_tensor::RusTorchError;
use thiserror::Error;

/// The result of reading or running a model.
pub type OnnxResult<T> = Result<T, OnnxError>;

/// A failure to read or run a model. Its text is one line with the problem, the place, and advice.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OnnxError {
    /// Any of the errors below, with the file's path.
    #[error("{}: {error}", path.display())]
    InFile {
        /// The file.
        path: PathBuf,
        /// The problem.
        error: Box<OnnxError>,
    },
    /// A file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file contradicts its format, or itself.
    #[error("{place}: {problem}; the file is damaged, or is not an ONNX file")]
    Damaged {
        /// The part of the file.
        place: String,
        /// The problem.
        problem: String,
    },
    /// The file is valid, but has unsupported parts.
    #[error("not supported: {}; export the model without them", parts.join(", "))]
    Unsupported {
        /// All such parts: operators, operator sets, types.
        parts: Vec<String>,
    },
    /// The elements of a tensor are in another file, which cannot be used.
    #[error("tensor {tensor:?} is in the file {location:?}: {problem}")]
    External {
        /// The tensor.
        tensor: String,
        /// The path of the other file, as the model gives it.
        location: String,
        /// The problem, and what to do.
        problem: String,
    },
    /// The inputs do not match the model's.
    #[error("{problem}; the model takes {expected}")]
    Input {
        /// The problem.
        problem: String,
        /// The inputs of the model.
        expected: String,
    },
    /// A node cannot run.
    #[error("node {node}: {error}")]
    Node {
        /// The node, by its name or its first result.
        node: String,
        /// The problem.
        error: Box<CallError>,
    },
}

impl OnnxError {
    /// The kind, for programs that react to it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::InFile { error, .. } => error.kind(),
            Self::File(error) => error.kind(),
            Self::Damaged { .. } => ErrorKind::Format,
            Self::Unsupported { .. } => ErrorKind::Unsupported,
            Self::External { .. } => ErrorKind::Missing,
            Self::Input { .. } => ErrorKind::Argument,
            Self::Node { error, .. } => error.kind(),
        }
    }

    pub(crate) fn damaged(place: impl ToString, problem: impl ToString) -> Self {
        Self::Damaged {
            place: place.to_string(),
            problem: problem.to_string(),
        }
    }

    pub(crate) fn unsupported(part: impl ToString) -> Self {
        Self::Unsupported {
            parts: vec![part.to_string()],
        }
    }

    pub(crate) fn in_file(self, path: &Path) -> Self {
        match self {
            // Its text has the path.
            Self::File(error) => Self::File(error),
            error => Self::InFile {
                path: path.to_owned(),
                error: Box::new(error),
            },
        }
    }

    /// The failure of a node; one of a node in its graphs stays as it is.
    pub(crate) fn in_node(self, name: &str) -> Self {
        match self {
            Self::Node { node, error } if node.is_empty() => Self::Node {
                node: name.to_owned(),
                error,
            },
            error => error,
        }
    }

    /// Returns whether the model, or a call in it, is unsupported rather than invalid.
    pub fn is_unsupported(&self) -> bool {
        match self {
            Self::InFile { error, .. } => error.is_unsupported(),
            Self::Unsupported { .. } => true,
            Self::Node { error, .. } => {
                matches!(**error, CallError::Missing(_) | CallError::Untyped(_))
            }
            _ => false,
        }
    }
}

impl From<CallError> for OnnxError {
    fn from(error: CallError) -> Self {
        Self::Node {
            node: String::new(),
            error: Box::new(error),
        }
    }
}

impl From<RusTorchError> for OnnxError {
    fn from(error: RusTorchError) -> Self {
        CallError::from(error).into()
    }
}
