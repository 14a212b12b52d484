//! When something was recorded, or written over.

use std::sync::atomic::{AtomicU64, Ordering};

/// A point in the order in which a process records operations and writes over memory. Later ones
/// compare greater; the default one is before all others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct Moment(u64);

impl Moment {
    /// A moment behind all that were given before.
    pub fn next() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self(LAST.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

/// The latest of some moments.
#[derive(Default, Debug)]
pub(crate) struct Latest(AtomicU64);

impl Latest {
    pub(crate) fn get(&self) -> Moment {
        Moment(self.0.load(Ordering::Relaxed))
    }

    pub(crate) fn raise(&self, to: Moment) {
        self.0.fetch_max(to.0, Ordering::Relaxed);
    }
}
