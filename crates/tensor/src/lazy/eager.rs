//! Eager mode for debuggers: each operation is computed when it is called.

use std::sync::LazyLock;

use rustorch_runtime::platform::is_on;

use crate::lazy::recording::is_recording;

/// The variable that asks for it.
const VARIABLE: &str = "RUSTORCH_EAGER";

static IS_ASKED: LazyLock<bool> = LazyLock::new(|| is_on(VARIABLE));

/// Is each operation computed as it is called? A step that is recorded to be run many times is not.
#[inline]
pub(crate) fn is_eager() -> bool {
    *IS_ASKED && !is_recording()
}
