//! The model that is part of the program.

use rustorch_gguf::{Gguf, GgufError};

/// Puts bytes where vector instructions like to find them.
#[repr(C, align(64))]
struct Aligned<T: ?Sized>(T);

static BYTES: &Aligned<[u8]> =
    &Aligned(*include_bytes!("../../../models/classics-13m-Q4_K_M.gguf"));

/// Its name.
pub(crate) const NAME: &str = "classics-13m-Q4_K_M";

/// How a story begins when nobody says how.
pub(crate) const OPENING: &str = "Once upon a time there was a king who";

/// The model, where it lies in the program.
pub(crate) fn open() -> Result<Gguf, GgufError> {
    Gguf::from_static(&BYTES.0)
}
