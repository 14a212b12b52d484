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

    /// Memory with a `T` made of `content`: what was kept is filled by `renew`, whose work is less than
    /// dropping it and moving another one there; new memory by `make`.
    #[inline]
    pub(crate) fn fill<C>(
        &self,
        content: C,
        renew: impl FnOnce(&mut T, C),
        make: impl FnOnce(C) -> T,
    ) -> Arc<T> {
        let spare = self.0.borrow_mut().pop();
        if let Some(mut spare) = spare
            && let Some(place) = Arc::get_mut(&mut spare)
        {
            renew(place, content);
            return spare;
        }
        Arc::new(make(content))
    }

    /// Keeps memory that nobody else has a handle on.
    pub(crate) fn keep(&self, spare: Arc<T>) {
        let mut spares = self.0.borrow_mut();
        if spares.len() < MOST {
            spares.push(spare);
        }
    }
}
