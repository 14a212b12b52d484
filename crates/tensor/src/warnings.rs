//! Warnings of calls that are allowed and rarely meant.

use std::fmt::Display;
use std::sync::{Mutex, PoisonError};

use rustorch_runtime::Call;

use crate::call;

/// Calls with a warning, and the warning.
static WARNED: Mutex<Vec<(Call, &str)>> = Mutex::new(Vec::new());

/// Warns once for each line that calls, as PyTorch does; `name` is the method that has something to say.
/// This is for the crates of the project alone.
#[track_caller]
pub fn warn_once(name: &'static str, text: impl Display) {
    let call = call::current(name);
    let mut warned = WARNED.lock().unwrap_or_else(PoisonError::into_inner);
    if !warned.contains(&(call, name)) {
        warned.push((call, name));
        warn(format_args!("{call}: {text}"));
    }
}

/// Shows a warning: to the program's subscriber of `tracing`, or as a line of standard error if there never was one.
pub(crate) fn warn(text: impl Display) {
    match tracing::dispatcher::has_been_set() {
        true => tracing::warn!("{text}"),
        false => eprintln!("warning: {text}"),
    }
}
