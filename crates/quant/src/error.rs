//! Errors of values and blocks.

use crate::BlockFormat;
use rustorch_errors::ErrorKind;

/// The reason why a conversion was rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantError {
    /// The number of values does not fill whole blocks.
    #[error(
        "{elements} values do not fill whole {format} blocks: pass a multiple of {}",
        .format.block_len()
    )]
    PartialBlock {
        /// The format asked for.
        format: BlockFormat,
        /// The number of values given.
        elements: usize,
    },
    /// The bytes and the values describe different numbers of blocks.
    #[error(
        "{elements} values in {format} take {expected} bytes, not {bytes}: pass matching lengths"
    )]
    BufferLength {
        /// The format asked for.
        format: BlockFormat,
        /// The number of values given.
        elements: usize,
        /// The bytes that many values take.
        expected: usize,
        /// The bytes given.
        bytes: usize,
    },
    /// The values and the scales or minima describe different numbers of groups.
    #[error(
        "{elements} values in {format} have {groups} groups, not {given}: pass a scale and a minimum for each"
    )]
    Groups {
        /// The format asked for.
        format: BlockFormat,
        /// The number of values given.
        elements: usize,
        /// The groups that so many values have.
        groups: usize,
        /// The scales or minima given.
        given: usize,
    },
    /// No block format has this name.
    #[error("unknown block format `{name}`: use one of {}", names())]
    UnknownFormat {
        /// The name as it was given.
        name: String,
    },
}

impl QuantError {
    /// The kind, for programs that react to it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::PartialBlock { .. } | Self::BufferLength { .. } | Self::Groups { .. } => {
                ErrorKind::Argument
            }
            Self::UnknownFormat { .. } => ErrorKind::Unsupported,
        }
    }
}

fn names() -> String {
    let names: Vec<_> = BlockFormat::ALL
        .iter()
        .map(|format| format.name())
        .collect();
    names.join(", ")
}
