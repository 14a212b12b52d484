//! Points in time of recordings and writes.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Call;
use crate::journal::lock;

/// A point in the order of recorded operations and writes in a process. Later ones compare greater;
/// the default one is before all others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct Moment(u64);

impl Moment {
    /// A new moment, after all earlier ones.
    pub fn next() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self(LAST.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

/// The latest of some moments, and whose call it was.
#[derive(Default, Debug)]
pub(crate) struct Latest {
    moment: AtomicU64,
    call: Mutex<Option<Call>>,
}

impl Latest {
    pub(crate) fn get(&self) -> Moment {
        Moment(self.moment.load(Ordering::Relaxed))
    }

    pub(crate) fn call(&self) -> Option<Call> {
        *lock(&self.call)
    }

    pub(crate) fn raise(&self, to: Moment, by: Option<Call>) {
        if self.moment.fetch_max(to.0, Ordering::Relaxed) < to.0 {
            *lock(&self.call) = by;
        }
    }
}
