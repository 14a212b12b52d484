//! What can go wrong between values and blocks.

use crate::BlockFormat;

/// Why a conversion was refused.
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
    /// No block format has this name.
    #[error("`{name}` is no block format: use one of {}", names())]
    UnknownFormat {
        /// The name as it was given.
        name: String,
    },
}

fn names() -> String {
    let names: Vec<_> = BlockFormat::ALL
        .iter()
        .map(|format| format.name())
        .collect();
    names.join(", ")
}
