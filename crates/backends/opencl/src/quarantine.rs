//! State of a device that hangs.

use std::sync::OnceLock;

use crate::status::Failure;

/// A device that was given up while it worked is called no more. It may still read and write all the
/// memory that it was given. Its driver may wait for it in any call. So nothing that was made on it
/// is released, and the memory that belongs to that is never given back.
#[derive(Debug, Default)]
pub(crate) struct Quarantine(OnceLock<Failure>);

impl Quarantine {
    /// Fails if the device was given up.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        self.0.get().map_or(Ok(()), |why| Err(*why))
    }

    /// Gives the device up; why, which is the first reason.
    pub(crate) fn begin(&self, why: Failure) -> Failure {
        *self.0.get_or_init(|| why)
    }
}
