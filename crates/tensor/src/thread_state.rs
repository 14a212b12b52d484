//! State that is another one during a call.

use std::marker::PhantomData;

/// A state that was changed, and is as before when this is dropped, also by a panic.
pub(crate) struct ThreadState<T, S: Fn(T) = fn(T)> {
    before: Option<T>,
    set: S,
    /// The state is a thread's own.
    thread: PhantomData<*const ()>,
}

impl<T, S: Fn(T)> ThreadState<T, S> {
    /// Calls `set` with the state `before` in the end.
    pub(crate) fn restoring(before: T, set: S) -> Self {
        Self {
            before: Some(before),
            set,
            thread: PhantomData,
        }
    }
}

impl<T, S: Fn(T)> Drop for ThreadState<T, S> {
    fn drop(&mut self) {
        if let Some(before) = self.before.take() {
            (self.set)(before);
        }
    }
}

/// Calls `f`, and then `set` with the state `before`, also after a panic.
pub(crate) fn restoring<T, R>(before: T, set: impl Fn(T), f: impl FnOnce() -> R) -> R {
    let _state = ThreadState::restoring(before, set);
    f()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn the_state_is_as_before_after_a_call_and_a_panic() {
        let state = Cell::new(1);
        let set = |before| state.set(before);
        assert_eq!(restoring(state.replace(2), set, || state.get()), 2);
        assert_eq!(state.get(), 1);
        let ended = catch_unwind(AssertUnwindSafe(|| {
            restoring(state.replace(3), set, || assert_eq!(state.get(), 1));
        }));
        assert!(ended.is_err());
        assert_eq!(state.get(), 1);
    }
}
