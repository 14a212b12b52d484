//! Who called the library: the method and the line by which the user did.
//!
//! Operations are computed later, where nothing tells any more where they were asked for. So the
//! first function of the library that a thread enters notes it ([`rustorch_macros::track_calls`]),
//! those that it calls leave that as it is, and what they record takes it along.

use std::cell::Cell;
use std::panic::Location;

use rustorch_runtime::Call;

thread_local! {
    static CALL: Cell<Option<Call>> = const { Cell::new(None) };
}

/// The time that a function of the library takes.
pub(crate) struct Entered {
    /// Did the user call it, not another one of the library's?
    is_outer: bool,
}

/// Notes that `method` was called, until the result is dropped.
#[inline]
#[track_caller]
pub(crate) fn enter(method: &'static str) -> Entered {
    let is_outer = CALL.get().is_none();
    if is_outer {
        let location = Location::caller();
        CALL.set(Some(Call { method, location }));
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

/// The user's call that led here.
pub(crate) fn entered() -> Option<Call> {
    CALL.get()
}

/// The user's call that led here; else that of `method` by the line that calls this.
#[track_caller]
pub(crate) fn current(method: &'static str) -> Call {
    let location = Location::caller();
    entered().unwrap_or(Call { method, location })
}
