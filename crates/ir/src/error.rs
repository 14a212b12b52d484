//! Errors in the arguments of an operation.

use crate::ErrorKind;

/// The arguments do not fit the operation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{op}: expected {expected}, got {got}")]
pub struct OpError {
    /// Name of the operation.
    pub op: &'static str,
    /// Expected arguments.
    pub expected: String,
    /// Given arguments.
    pub got: String,
}

impl OpError {
    /// The kind, for programs that react to it.
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::Argument
    }

    /// `op` expected one thing and got another.
    pub fn new(op: &'static str, expected: impl ToString, got: impl ToString) -> Self {
        Self {
            op,
            expected: expected.to_string(),
            got: got.to_string(),
        }
    }
}
