//! All errors of reading and writing files of tensors.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rustorch_errors::ErrorKind;

use rustorch_gguf::{GgufError, io_advice, quoted};
use rustorch_ir::DType;
use rustorch_tensor::RusTorchError;
use thiserror::Error;

/// The result of reading or writing a file of tensors.
pub type FileResult<T> = Result<T, FileError>;

/// A failure to read or write a file of tensors. Its text is one line with the problem, the place, and advice.
#[derive(Error)]
#[non_exhaustive]
pub enum FileError {
    /// Any of the errors below, with the file's path.
    #[error("{}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The problem.
        error: Box<FileError>,
    },
    /// The operating system reported an error.
    #[error("cannot {action}: {error}{}", io_advice(error))]
    Io {
        /// The attempted action, such as "open the file".
        action: String,
        /// The system's answer.
        error: io::Error,
    },
    /// The path leads to something that is not an ordinary file.
    #[error("this is not an ordinary file; give the path of a file of tensors")]
    NotAFile,
    /// Neither the first bytes nor the name of a file belong to a known format.
    #[error(
        "no known format of tensors: {found}; known are .safetensors, .npy, .npz, .pt, .pth and .gguf"
    )]
    UnknownFormat {
        /// A description of the file's contents or name.
        found: String,
    },
    /// A part of the file needs more bytes than the file has.
    #[error(
        "{place}, at byte {offset}, needs {needed} bytes but {left} are left; \
         the file is cut short or damaged, fetch it again"
    )]
    Truncated {
        /// The part of the file.
        place: String,
        /// The offset of that part.
        offset: u64,
        /// Bytes that it needs.
        needed: u64,
        /// Bytes that there are.
        left: u64,
    },
    /// The file contradicts its format, or itself.
    #[error("{place}: {problem}; the file is damaged, or its writer at fault")]
    Damaged {
        /// The part of the file.
        place: String,
        /// The problem.
        problem: String,
    },
    /// The file is valid, but has an unsupported part.
    #[error("{place}: {found} is not supported; {advice}")]
    Unsupported {
        /// The part of the file.
        place: String,
        /// The unsupported contents.
        found: String,
        /// Advice on how to proceed.
        advice: String,
    },
    /// Memory for copying or decompressing is too small or exceeds the limit.
    #[error("{place}: this needs {bytes} bytes of memory, but {limit}")]
    TooLarge {
        /// The part of the file.
        place: String,
        /// Number of bytes.
        bytes: u64,
        /// The limit that forbids it.
        limit: String,
    },
    /// The shape, strides or elements of a tensor are wrong, or it could not be computed.
    #[error("tensor {}: {error}", quoted(name))]
    Tensor {
        /// The tensor's name.
        name: String,
        /// The problem.
        error: Box<RusTorchError>,
    },
    /// A format cannot hold a tensor.
    #[error("tensor {}: {problem}; {advice}", quoted(name))]
    Unwritable {
        /// The tensor's name.
        name: String,
        /// Why not.
        problem: String,
        /// Advice on how to proceed.
        advice: String,
    },
    /// A GGUF file is wrong.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// A requested tensor does not exist.
    #[error("there is no tensor {}; there are {present}", quoted(name))]
    Missing {
        /// Its name.
        name: String,
        /// The names that are present.
        present: String,
    },
    /// Two tensors get one name.
    #[error(
        "the tensors {} and {} both get the name {}; give each its own",
        quoted(&names[0]), quoted(&names[1]), quoted(name)
    )]
    SameName {
        /// The name.
        name: String,
        /// Their names before.
        names: [String; 2],
    },
    /// A requested key does not exist.
    #[error("there is no {key} in {place}, which has {present}")]
    NoKey {
        /// The key, quoted if it is a text.
        key: String,
        /// The kind of value that was asked.
        place: &'static str,
        /// The keys that there are.
        present: String,
    },
    /// A value has another type than the requested one.
    #[error("expected {expected}, got {found}")]
    OtherKind {
        /// The kind that was asked for.
        expected: &'static str,
        /// The kind that it is.
        found: String,
    },
    /// A value that a format cannot hold.
    #[error("{place}: {problem}; {advice}")]
    UnwritableValue {
        /// The keys that lead to it.
        place: String,
        /// Why not.
        problem: String,
        /// A cure.
        advice: &'static str,
    },
}

/// The line of [`Display`](fmt::Display), as Rust prints this form of an error that `main` returns.
impl fmt::Debug for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FileError {
    /// The kind, for programs that react to it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::File { error, .. } => error.kind(),
            Self::Io { error, .. } => error.into(),
            Self::Tensor { error, .. } => error.kind(),
            Self::Gguf(error) => error.kind(),
            Self::UnknownFormat { .. } | Self::Truncated { .. } | Self::Damaged { .. } => {
                ErrorKind::Format
            }
            Self::Unsupported { .. } | Self::Unwritable { .. } | Self::UnwritableValue { .. } => {
                ErrorKind::Unsupported
            }
            Self::TooLarge { .. } => ErrorKind::OutOfMemory,
            Self::Missing { .. } | Self::NoKey { .. } => ErrorKind::Missing,
            Self::NotAFile | Self::SameName { .. } | Self::OtherKind { .. } => ErrorKind::Argument,
        }
    }

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

/// A file's own words, shortened to a line and without control characters.
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
