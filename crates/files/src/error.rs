//! Every way in which reading or writing a file of tensors can fail.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rustorch_gguf::{GgufError, io_advice, quoted};
use rustorch_ir::DType;
use rustorch_tensor::RusTorchError;
use thiserror::Error;

/// The result of reading or writing a file of tensors.
pub type FileResult<T> = Result<T, FileError>;

/// A failure to read or write a file of tensors. Its text is one line that says what is wrong, where, and what to do.
#[derive(Error)]
#[non_exhaustive]
pub enum FileError {
    /// Any of the failures below, in a file whose path is known.
    #[error("{}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: Box<FileError>,
    },
    /// The operating system refused.
    #[error("cannot {action}: {error}{}", io_advice(error))]
    Io {
        /// What was attempted, such as "open the file".
        action: String,
        /// The system's answer.
        error: io::Error,
    },
    /// The path leads to something that is not an ordinary file.
    #[error("this is not an ordinary file; give the path of a file of tensors")]
    NotAFile,
    /// Neither the first bytes nor the name of a file tell a format that is known.
    #[error(
        "no known format of tensors: {found}; known are .safetensors, .npy, .npz, .pt, .pth and .gguf"
    )]
    UnknownFormat {
        /// What the file, or its name, is like.
        found: String,
    },
    /// Something announced in the file needs more bytes than there are.
    #[error(
        "{place}, at byte {offset}, needs {needed} bytes but {left} are left; \
         the file is cut short or damaged, fetch it again"
    )]
    Truncated {
        /// Which part of the file.
        place: String,
        /// Where that part begins.
        offset: u64,
        /// How many bytes it needs.
        needed: u64,
        /// How many there are.
        left: u64,
    },
    /// The file contradicts its format, or itself.
    #[error("{place}: {problem}; the file is damaged, or its writer at fault")]
    Damaged {
        /// Which part of the file.
        place: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The file is in order, and has something that is not read.
    #[error("{place}: {found} is not supported; {advice}")]
    Unsupported {
        /// Which part of the file.
        place: String,
        /// What is there.
        found: String,
        /// What to do.
        advice: String,
    },
    /// Memory for what has to be copied or decompressed is not there, or was not granted.
    #[error("{place}: {bytes} bytes of memory are needed, and {limit}")]
    TooLarge {
        /// Which part of the file.
        place: String,
        /// How many.
        bytes: u64,
        /// What forbids it.
        limit: String,
    },
    /// The shape, strides or elements of a tensor are wrong, or it could not be computed.
    #[error("tensor {}: {error}", quoted(name))]
    Tensor {
        /// The tensor's name.
        name: String,
        /// What is wrong with it.
        error: Box<RusTorchError>,
    },
    /// A format cannot hold a tensor.
    #[error("tensor {}: {problem}; {advice}", quoted(name))]
    Unwritable {
        /// The tensor's name.
        name: String,
        /// Why not.
        problem: String,
        /// What to do.
        advice: String,
    },
    /// A GGUF file is wrong.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// A tensor that was asked for is not there.
    #[error("there is no tensor {}; there are {present}", quoted(name))]
    Missing {
        /// Its name.
        name: String,
        /// What there is.
        present: String,
    },
}

/// The line of [`Display`](fmt::Display), as Rust prints this form of an error that `main` returns.
impl fmt::Debug for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FileError {
    /// Says which file the failure is in.
    pub(crate) fn in_file(self, path: &Path) -> Self {
        match self {
            Self::File { .. } | Self::Gguf(GgufError::File { .. }) => self,
            error => Self::File {
                path: path.to_owned(),
                error: Box::new(error),
            },
        }
    }

    pub(crate) fn io(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let action = action.into();
        move |error| Self::Io { action, error }
    }

    pub(crate) fn damaged(place: impl ToString, problem: impl ToString) -> Self {
        Self::Damaged {
            place: place.to_string(),
            problem: one_line(&problem.to_string()),
        }
    }

    pub(crate) fn unsupported(
        place: impl ToString,
        found: impl ToString,
        advice: impl ToString,
    ) -> Self {
        Self::Unsupported {
            place: place.to_string(),
            found: found.to_string(),
            advice: advice.to_string(),
        }
    }

    pub(crate) fn tensor(name: &str) -> impl FnOnce(RusTorchError) -> Self {
        let name = name.to_owned();
        |error| Self::Tensor {
            name,
            error: Box::new(error),
        }
    }

    /// A dtype that a format does not have.
    pub(crate) fn no_dtype(name: &str, format: &str, dtype: DType, advice: &str) -> Self {
        Self::Unwritable {
            name: name.to_owned(),
            problem: format!("{format} has no {dtype}"),
            advice: advice.to_owned(),
        }
    }
}

/// What may be made of a file's own words, as a line that is not too long.
fn one_line(text: &str) -> String {
    const LONGEST: usize = 400;
    let mut line = String::new();
    for c in text.chars().take(LONGEST) {
        match c.is_control() {
            true => line.extend(c.escape_debug()),
            false => line.push(c),
        }
    }
    if text.chars().nth(LONGEST).is_some() {
        line.push('…');
    }
    line
}
