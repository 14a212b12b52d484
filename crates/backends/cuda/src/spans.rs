//! Times of the device's work on asynchronous runs, reported once they are known.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustorch_runtime::Watcher;

use crate::context::Context;
use crate::event::Event;
use crate::status::Failure;

/// Spans of the stream between two moments, which may still be to come.
#[derive(Default)]
pub(crate) struct Spans(Mutex<State>);

#[derive(Default)]
struct State {
    /// Oldest first.
    pending: VecDeque<Pending>,
    /// The end of the last reported span, and its time by the host's clock.
    last: Option<(Event, Instant)>,
    /// Unused events.
    free: Vec<Event>,
}

/// A span that was not reported yet.
pub(crate) struct Pending {
    begin: Event,
    end: Event,
    queued: Instant,
    watcher: Watcher,
}

impl Spans {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a span behind all that is queued so far.
    pub(crate) fn begin(
        &self,
        context: &Arc<Context>,
        watcher: Watcher,
    ) -> Result<Pending, Failure> {
        let event = || match self.state().free.pop() {
            Some(event) => Ok(event),
            None => Event::new(context),
        };
        let (begin, end) = (event()?, event()?);
        begin.record()?;
        Ok(Pending {
            begin,
            end,
            queued: Instant::now(),
            watcher,
        })
    }

    /// Ends a span behind all that is queued so far.
    pub(crate) fn end(&self, span: Pending) -> Result<(), Failure> {
        span.end.record()?;
        self.state().pending.push_back(span);
        Ok(())
    }

    /// Tells of the spans that are over.
    pub(crate) fn tell(&self) -> Result<(), Failure> {
        loop {
            let told = self.state().next()?;
            let Some((watcher, begin, time)) = told else {
                return Ok(());
            };
            watcher(begin, time);
        }
    }
}

impl State {
    /// The oldest span if it is over: its watcher, start and duration.
    fn next(&mut self) -> Result<Option<(Watcher, Instant, Duration)>, Failure> {
        match self.pending.front() {
            Some(span) if span.end.has_come()? => {}
            _ => return Ok(None),
        }
        let Some(span) = self.pending.pop_front() else {
            return Ok(None);
        };
        let now = Instant::now();
        let time = span.end.since(&span.begin)?;
        let gap = match &self.last {
            Some((last, at)) => span.begin.since(last)?.map(|gap| *at + gap),
            None => None,
        };
        let time = time.unwrap_or_default();
        let begin = at_host(gap, span.queued, now, time);
        if let Some((event, _)) = self.last.replace((span.end, begin + time)) {
            self.free.push(event);
        }
        self.free.push(span.begin);
        Ok(Some((span.watcher, begin, time)))
    }
}

/// Start of a span by the host's clock. The device's clock gives it from the end of the last one.
/// Clocks drift apart, so it is kept between the queueing and the time at which the end was seen.
fn at_host(told: Option<Instant>, queued: Instant, seen: Instant, time: Duration) -> Instant {
    let latest = seen.checked_sub(time).unwrap_or(queued);
    told.unwrap_or(queued).min(latest).max(queued)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_lie_between_being_queued_and_seen() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let begin = |told: Option<u64>| {
            let begin = at_host(told.map(at), at(10), at(20), Duration::from_millis(4));
            (begin - start).as_millis()
        };
        for (told, expected) in [
            (None, 10),
            (Some(5), 10),
            (Some(13), 13),
            (Some(16), 16),
            (Some(19), 16),
        ] {
            assert_eq!(begin(told), expected, "{told:?}");
        }
    }
}
