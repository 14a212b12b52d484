//! Kinds of errors, the same for all crates.
//!
//! Each crate has an error type of its own, whose text has the cause and the cure. Its method `kind` is for programs
//! that react to an error.

use std::io;

/// The kind of an error, by the reaction of a program.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Arguments do not fit: the call has to change.
    Argument,
    /// A file or text is damaged, or in another format than expected.
    Format,
    /// Well-formed input, or an operation, has no support here.
    Unsupported,
    /// A file, key, tensor or device is missing.
    Missing,
    /// The system refused to read, write or connect.
    Io,
    /// The memory of the host or of a device ran out.
    OutOfMemory,
    /// A device failed, and no other one could take over.
    Device,
    /// Values were lost with a device: they have to be made again, as from a checkpoint.
    DataLost,
    /// Other ranks left a collective, or did not answer.
    Ranks,
    /// The caller stopped the work.
    Stopped,
}

impl From<&io::Error> for ErrorKind {
    fn from(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::Missing,
            io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => Self::Format,
            io::ErrorKind::InvalidInput => Self::Argument,
            io::ErrorKind::OutOfMemory => Self::OutOfMemory,
            io::ErrorKind::Unsupported => Self::Unsupported,
            _ => Self::Io,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_is_missing_and_a_full_disk_is_not() {
        let missing = std::fs::read("no/such/file").unwrap_err();
        assert_eq!(ErrorKind::from(&missing), ErrorKind::Missing);
        let full = io::Error::from(io::ErrorKind::StorageFull);
        assert_eq!(ErrorKind::from(&full), ErrorKind::Io);
    }
}
