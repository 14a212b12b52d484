//! Texts of warnings.

use std::fmt::{self, Write};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Level, Metadata, Subscriber};

/// Keeps the texts of warnings.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

/// The text of an event.
#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, _: &Field, value: &dyn fmt::Debug) {
        write!(self.0, "{value:?}").expect("a string takes all");
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(text.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// A second subscriber, which is never dropped.
///
/// While only one is alive, tracing asks the thread that first reaches a line whether anyone wants its events. A test
/// beside this one, without a subscriber, would then turn the line off for all.
static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(Warnings::default()));

/// Calls `f`, and returns this thread's warnings during the call.
pub fn warnings<R>(f: impl FnOnce() -> R) -> (R, Vec<String>) {
    LazyLock::force(&SECOND);
    let warnings = Warnings::default();
    let result = tracing::subscriber::with_default(warnings.clone(), f);
    let mut all = warnings.0.lock().unwrap_or_else(PoisonError::into_inner);
    (result, std::mem::take(&mut all))
}

#[cfg(test)]
mod tests {
    use super::warnings;

    /// A line that warns.
    fn line() {
        tracing::warn!("heard");
    }

    #[test]
    fn a_line_that_another_thread_reached_first_is_heard() {
        let ((), all) = warnings(|| {
            std::thread::spawn(line).join().expect("the line returns");
            line();
        });
        assert_eq!(all, ["heard"]);
    }
}
