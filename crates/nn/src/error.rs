//! Errors of wrong arguments.

use rustorch_ir::OpError;
use rustorch_tensor::{RusTorchError, RusTorchResult};

/// `op` expected one thing and got another.
pub(crate) fn unexpected(
    op: &'static str,
    expected: impl ToString,
    got: impl ToString,
) -> RusTorchError {
    OpError::new(op, expected, got).into()
}

/// Fails unless `condition`.
pub(crate) fn require(
    op: &'static str,
    condition: bool,
    expected: impl ToString,
    got: impl ToString,
) -> RusTorchResult<()> {
    match condition {
        true => Ok(()),
        false => Err(unexpected(op, expected, got)),
    }
}
