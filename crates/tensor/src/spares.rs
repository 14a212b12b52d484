//! Memory of what was dropped, for the next of its kind: a history of a thousand operations goes at
//! once, which the allocator does not keep at hand.

use std::cell::RefCell;
use std::sync::Arc;

/// How many pieces a thread keeps: those of the longest history.
const MOST: usize = 1000;

/// A thread's pieces of memory, each with a `T` that holds nothing.
pub(crate) struct Spares<T>(RefCell<Vec<Arc<T>>>);

impl<T> Spares<T> {
    /// None yet.
    pub(crate) const fn new() -> Self {
        Self(RefCell::new(Vec::new()))
    }

    /// Memory that was kept, if there is some. To fill it is less work than to make a `T` and move that there.
    #[inline]
    pub(crate) fn take(&self) -> Option<Arc<T>> {
        self.0.borrow_mut().pop()
    }

    /// Keeps memory that nobody else has a handle on.
    pub(crate) fn keep(&self, spare: Arc<T>) {
        let mut spares = self.0.borrow_mut();
        if spares.len() < MOST {
            spares.push(spare);
        }
    }
}
