//! What is wrong with the arguments of an operation.

/// An operation was given arguments that it is not defined for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{op}: expected {expected}, got {got}")]
pub struct OpError {
    /// Name of the operation.
    pub op: &'static str,
    /// What it needs.
    pub expected: String,
    /// What it was given.
    pub got: String,
}

impl OpError {
    /// `op` expected one thing and got another.
    pub fn new(op: &'static str, expected: impl ToString, got: impl ToString) -> Self {
        Self {
            op,
            expected: expected.to_string(),
            got: got.to_string(),
        }
    }
}
