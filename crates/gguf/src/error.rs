//! All errors of reading and writing GGUF files.

use std::io;
use std::path::{Path, PathBuf};

use rustorch_errors::ErrorKind;

use thiserror::Error;

use crate::GgmlType;

/// A failure to read or write a GGUF file. Its text is one line with the problem, the place, and
/// advice.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum GgufError {
    /// Any of the failures below, in a file whose path is known.
    #[error("{}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The problem.
        error: Box<GgufError>,
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
    #[error("this is {found}, not an ordinary file; give the path of a .gguf file")]
    NotAFile {
        /// The kind that was found, such as "a directory".
        found: &'static str,
    },

    /// The file is empty.
    #[error("the file is empty; fetch it again")]
    Empty,

    /// The first bytes are not those of a GGUF file.
    #[error("not a GGUF file: {found}; {advice}")]
    NotGguf {
        /// A description of the bytes.
        found: String,
        /// Advice on how to proceed.
        advice: &'static str,
    },

    /// A GGUF file for machines of the other byte order.
    #[error(
        "this GGUF file is big-endian, but only little-endian files are read; \
         convert it with gguf-py's gguf_convert_endian.py"
    )]
    BigEndian,

    /// A version of the format that this reader does not know.
    #[error("GGUF version {version} is not supported, only 2 and 3 are; {}", version_advice(*version))]
    Version {
        /// The version that the file declares.
        version: u32,
    },

    /// Something announced in the file needs more bytes than are left in it.
    #[error(
        "{place}, at byte {offset}, needs at least {needed} bytes but {left} are left; \
         the file is cut short or damaged, fetch it again"
    )]
    Truncated {
        /// The part of the file.
        place: String,
        /// The offset of that part.
        offset: u64,
        /// How many bytes it needs.
        needed: u64,
        /// How many there are.
        left: u64,
    },

    /// A name that must be text is not.
    #[error(
        "{place}, at byte {offset}, has a name that is not UTF-8 text; the file is damaged, fetch it again"
    )]
    NameNotUtf8 {
        /// The part of the file.
        place: String,
        /// The offset of the name.
        offset: u64,
    },

    /// A metadata entry is wrong.
    #[error("key {}: {problem}", quoted(key))]
    Key {
        /// The entry's key.
        key: String,
        /// The problem.
        problem: KeyProblem,
    },

    /// A metadata entry that is needed is not there.
    #[error(
        "key {} ({expected}) is missing; the file is incomplete or describes another kind of model",
        quoted(key)
    )]
    Missing {
        /// The entry's key.
        key: String,
        /// The type that was asked for.
        expected: &'static str,
    },

    /// A metadata entry is there, with a value that does not fit the type asked for.
    #[error(
        "key {} must be {expected} but is {found}; convert the model again",
        quoted(key)
    )]
    WrongType {
        /// The entry's key.
        key: String,
        /// The type that was asked for.
        expected: &'static str,
        /// The type found, and its value in short.
        found: String,
    },

    /// `general.alignment` is impossible.
    #[error(
        "general.alignment is {alignment}, but must be a power of two and at least 8; the file's writer is at fault"
    )]
    Alignment {
        /// The alignment found.
        alignment: u32,
    },

    /// A tensor is wrong.
    #[error("tensor {}: {problem}", quoted(name))]
    Tensor {
        /// The tensor's name.
        name: String,
        /// The problem.
        problem: TensorProblem,
    },

    /// The parts of a model that is split over several files do not belong together.
    #[error(transparent)]
    Split(#[from] SplitProblem),
}

/// Errors of a metadata entry.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum KeyProblem {
    /// A key without a name.
    #[error("a key must have a name; the file is damaged, fetch it again")]
    Empty,
    /// The same key again.
    #[error("appears a second time at byte {offset}; the file is damaged, convert the model again")]
    Duplicate {
        /// The offset of the second one.
        offset: u64,
    },
    /// A value type that GGUF does not have.
    #[error(
        "unknown value type {id} at byte {offset}; the file is damaged or newer than this program"
    )]
    UnknownType {
        /// The type's number.
        id: u32,
        /// The offset.
        offset: u64,
    },
    /// Arrays within arrays beyond what any model uses.
    #[error(
        "arrays are nested more than {limit} deep; the file is damaged or hostile, do not use it"
    )]
    TooDeep {
        /// How deep they may be.
        limit: usize,
    },
}

/// Errors of a tensor.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TensorProblem {
    /// More dimensions than ggml has.
    #[error(
        "it has {count} dimensions, but at most {limit} are allowed; the file is damaged, fetch it again"
    )]
    TooManyDims {
        /// How many it has.
        count: u64,
        /// How many it may have.
        limit: usize,
    },
    /// A dimension of size 0.
    #[error("its dimensions {dims:?} contain a zero; the file is damaged, fetch it again")]
    ZeroDim {
        /// The dimensions, fastest first.
        dims: Vec<u64>,
    },
    /// A size that no memory can hold.
    #[error(
        "its dimensions {dims:?} are too large for this machine; the file is damaged, fetch it again"
    )]
    Overflow {
        /// The dimensions, fastest first.
        dims: Vec<u64>,
    },
    /// Rows that are not a whole number of blocks.
    #[error(
        "its rows of {row} elements are not whole {ty} blocks of {}; the file's writer is at fault",
        ty.block_len()
    )]
    PartialBlock {
        /// Elements in a row.
        row: u64,
        /// The tensor's type.
        ty: GgmlType,
    },
    /// A type number that ggml does not have.
    #[error("unknown tensor type {id}{}; convert the model again with a current llama.cpp, or update this program",
        removed_note(*id))]
    UnknownType {
        /// The type's number.
        id: u32,
    },
    /// A type that ggml has and RusTorch does not compute with.
    #[error(
        "tensor type {ty} is not supported; use a file of another quantisation, such as Q4_K_M, Q6_K or Q8_0"
    )]
    Unsupported {
        /// The type.
        ty: GgmlType,
    },
    /// An offset that is not a multiple of the alignment.
    #[error(
        "its offset {offset} is not a multiple of the alignment {alignment}; the file's writer is at fault"
    )]
    Misaligned {
        /// The offset in the data section.
        offset: u64,
        /// The file's alignment.
        alignment: usize,
    },
    /// Data that would lie beyond the end of the file.
    #[error(
        "its {len} bytes of data at byte {start} reach beyond the end of the file at {size}; \
         the file is cut short or damaged, fetch it again"
    )]
    OutOfRange {
        /// The offset of the data in the file.
        start: u64,
        /// How many bytes there should be.
        len: u64,
        /// The file's size.
        size: u64,
    },
    /// Data that is also another tensor's.
    #[error(
        "its data at byte {start} overlaps that of tensor {}; the file is damaged, fetch it again",
        quoted(other)
    )]
    Overlap {
        /// The offset of the data in the file.
        start: u64,
        /// The tensor that lies there too.
        other: String,
    },
    /// The same name again.
    #[error("appears more than once; every tensor needs its own name, convert the model again")]
    Duplicate,
    /// Data handed to the writer that is not the tensor's size.
    #[error(
        "it has {found} bytes of data, but its type and dimensions need {expected}; pass exactly that many"
    )]
    WrongSize {
        /// Bytes given; when more than needed, counted only up to the first write that was too much.
        found: u64,
        /// Bytes needed.
        expected: u64,
    },
}

/// Errors of a model that is split over several files.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SplitProblem {
    /// A later part was opened.
    #[error("this is part {part} of {count} of a split model; open the first part, {}", first.display())]
    NotFirst {
        /// This part's number, from 1.
        part: u32,
        /// The number of parts.
        count: u32,
        /// The first part's file name.
        first: PathBuf,
    },
    /// The other parts cannot be found, for their names cannot be told from this one's.
    #[error(
        "this is part {part} of {count} of a split model, so its name must end in \
         `-{part:05}-of-{count:05}.gguf`; give every part its original name"
    )]
    Name {
        /// This part's number, from 1.
        part: u32,
        /// The number of parts.
        count: u32,
    },
    /// A split model in memory, where there is nowhere to look for the other parts.
    #[error(
        "this is one of {count} parts of a split model, which cannot be read from memory; \
         open it by its path, or merge it with llama-gguf-split"
    )]
    InMemory {
        /// The number of parts.
        count: u32,
    },
    /// A part is missing.
    #[error("part {part} of {count} is missing; put it beside the first part")]
    MissingPart {
        /// The part's number, from 1.
        part: u32,
        /// The number of parts.
        count: u32,
    },
    /// A part says that it is another one.
    #[error(
        "this should be part {part} of {count} but says that it is part {found_part} of {found_count}; \
         fetch this part again"
    )]
    WrongPart {
        /// The number that it should have, from 1.
        part: u32,
        /// The number of parts there should be.
        count: u32,
        /// The number that it has, from 1.
        found_part: u32,
        /// The number of parts that it speaks of.
        found_count: u32,
    },
    /// The parts together do not hold the announced number of tensors.
    #[error(
        "the {count} parts hold {found} tensors, but {expected} were announced; fetch all parts of the same model"
    )]
    WrongTensorCount {
        /// The number of parts.
        count: u32,
        /// Tensors announced by `split.tensors.count`.
        expected: u64,
        /// Tensors found.
        found: u64,
    },
}

impl GgufError {
    /// The kind, for programs that react to it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::File { error, .. } => error.kind(),
            Self::Io { error, .. } => error.into(),
            Self::NotAFile { .. } => ErrorKind::Argument,
            Self::Missing { .. } => ErrorKind::Missing,
            Self::BigEndian | Self::Version { .. } => ErrorKind::Unsupported,
            Self::Empty
            | Self::NotGguf { .. }
            | Self::Truncated { .. }
            | Self::NameNotUtf8 { .. }
            | Self::Key { .. }
            | Self::WrongType { .. }
            | Self::Alignment { .. }
            | Self::Tensor { .. }
            | Self::Split(_) => ErrorKind::Format,
        }
    }

    /// Says which file the failure is in.
    pub(crate) fn in_file(self, path: &Path) -> Self {
        GgufError::File {
            path: path.to_owned(),
            error: Box::new(self),
        }
    }

    pub(crate) fn io(action: impl Into<String>, error: io::Error) -> Self {
        GgufError::Io {
            action: action.into(),
            error,
        }
    }

    pub(crate) fn key(key: &str, problem: KeyProblem) -> Self {
        GgufError::Key {
            key: key.to_owned(),
            problem,
        }
    }

    pub(crate) fn tensor(name: &str, problem: TensorProblem) -> Self {
        GgufError::Tensor {
            name: name.to_owned(),
            problem,
        }
    }
}

/// A name from a file as one line for a terminal: control characters are escaped, and long names
/// are shortened.
pub fn quoted(name: &str) -> String {
    const LONGEST: usize = 80;
    let shown: String = name
        .chars()
        .take(LONGEST)
        .flat_map(char::escape_debug)
        .collect();
    let rest = if name.chars().nth(LONGEST).is_some() {
        "…"
    } else {
        ""
    };
    format!("`{shown}{rest}`")
}

/// Advice for a failure of the system, after a `; `; nothing where that is not known.
pub fn io_advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "; check the path",
        io::ErrorKind::PermissionDenied => {
            "; give this user the permission, or choose another path"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "; make room on the disk",
        _ => "",
    }
}

fn version_advice(version: u32) -> &'static str {
    match version {
        0 => "the file is damaged, fetch it again",
        1 => "convert the model again with a current llama.cpp",
        _ => "update this program or convert the model again",
    }
}

/// Names of the type numbers that ggml has withdrawn (the comments in ggml.h's `enum ggml_type`).
fn removed_note(id: u32) -> &'static str {
    match id {
        4 => " (Q4_2, withdrawn from ggml)",
        5 => " (Q4_3, withdrawn from ggml)",
        31 => " (Q4_0_4_4, withdrawn from ggml)",
        32 => " (Q4_0_4_8, withdrawn from ggml)",
        33 => " (Q4_0_8_8, withdrawn from ggml)",
        36 => " (IQ4_NL_4_4, withdrawn from ggml)",
        37 => " (IQ4_NL_4_8, withdrawn from ggml)",
        38 => " (IQ4_NL_8_8, withdrawn from ggml)",
        _ => "",
    }
}
