//! Memory of dropped values, reused for the next ones. A history of a thousand operations is
//! dropped at once, and the allocator would return its memory to the system.

use std::cell::RefCell;
use std::sync::Arc;

/// Number of pieces that a thread keeps: those of the longest history.
const MOST: usize = 1000;

/// A thread's pieces of memory, each with a `T` that holds nothing.
pub(crate) struct Spares<T>(RefCell<Vec<Arc<T>>>);

impl<T> Spares<T> {
    /// An empty list.
    pub(crate) const fn new() -> Self {
        Self(RefCell::new(Vec::new()))
    }

    /// Memory that was kept, if there is some. To fill it is less work than to make a `T` and move that there.
    #[inline]
    pub(crate) fn take(&self) -> Option<Arc<T>> {
        self.0.borrow_mut().pop()
    }

    /// Keeps memory that has no other handle.
    pub(crate) fn keep(&self, spare: Arc<T>) {
        let mut spares = self.0.borrow_mut();
        if spares.len() < MOST {
            spares.push(spare);
        }
    }
}
