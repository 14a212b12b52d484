//! The caller of the library: the method and the line of the user's call.
//!
//! Operations are computed later, when the location of the user's call is no longer known. So the
//! first library function that a thread enters notes it ([`rustorch_macros::track_calls`]). Inner
//! functions do not change it, and recorded operations and errors keep it.

use std::cell::Cell;
use std::panic::Location;

use rustorch_runtime::Call;

thread_local! {
    static CALL: Cell<Option<Call>> = const { Cell::new(None) };
}

/// The time that a function of the library takes.
#[must_use]
pub struct Entered {
    /// Did the user call it, not another one of the library's?
    is_outer: bool,
}

/// Notes that `method` was called, until the result is dropped.
#[inline]
#[track_caller]
pub fn enter(method: &'static str) -> Entered {
    let location = Some(Location::caller());
    entered_by(Call { method, location })
}

/// Notes a call of `method` by a part of Rust that hides its own caller.
pub(crate) fn enter_unseen(method: &'static str) -> Entered {
    let location = None;
    entered_by(Call { method, location })
}

#[inline]
fn entered_by(call: Call) -> Entered {
    let is_outer = CALL.get().is_none();
    if is_outer {
        CALL.set(Some(call));
    }
    Entered { is_outer }
}

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        if self.is_outer {
            CALL.set(None);
        }
    }
}

/// Calls a user's closure: library calls inside it count as the user's.
pub fn user<R>(f: impl FnOnce() -> R) -> R {
    /// Puts the call back, also when the function panics.
    struct Within(Option<Call>);
    impl Drop for Within {
        fn drop(&mut self) {
            CALL.set(self.0);
        }
    }
    let _within = Within(CALL.take());
    f()
}

/// The user's call that led here.
pub(crate) fn entered() -> Option<Call> {
    CALL.get()
}

/// The user's call that led here; else that of `method` by the line that calls this.
#[track_caller]
pub(crate) fn current(method: &'static str) -> Call {
    let location = Some(Location::caller());
    entered().unwrap_or(Call { method, location })
}
