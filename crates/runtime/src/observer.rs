//! Observers of a runtime, such as a profiler. Without observers, each possible event costs a load
//! of one flag.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use crate::platform::Instant;
use crate::{DeviceType, Fallback};

/// The description of a plan's launch, the same in every run.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct LaunchInfo {
    /// The names of its operations.
    pub name: String,
    /// Where.
    pub device: DeviceType,
    /// Approximate number of bytes that it reads and writes.
    pub bytes: u64,
    /// Multiplications and additions of its products; 0 if there are none.
    pub flops: u64,
}

/// Consecutive launches of a run with their times: usually all of a segment. Reporting each launch separately would
/// cost much compared with a short launch.
#[derive(Clone, Copy, Debug)]
pub struct LaunchTimes<'a> {
    /// The segment's launches, in the order in which they are made.
    pub launches: &'a Arc<Vec<Arc<LaunchInfo>>>,
    /// The first of the reported launches.
    pub first: usize,
    /// Start of the run.
    pub begin: Instant,
    /// Start and duration of the device's work on that launch and the following ones.
    pub times: &'a [LaunchTime],
}

/// Time of a device's work on a launch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LaunchTime {
    /// Start, in nanoseconds since the run began.
    pub since: u64,
    /// Duration in nanoseconds.
    pub time: u64,
}

impl LaunchTime {
    /// A launch that began `since` after the start of the run, and took `time`.
    pub fn new(since: Duration, time: Duration) -> Self {
        let [since, time] = [since, time].map(|d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX));
        Self { since, time }
    }
}

impl<'a> LaunchTimes<'a> {
    /// The launches, each with its start and duration.
    pub fn iter(self) -> impl Iterator<Item = (&'a Arc<LaunchInfo>, Instant, Duration)> {
        let launches = self.launches.iter().skip(self.first);
        let each = launches.zip(self.times);
        each.map(move |(launch, at)| {
            let [since, time] = [at.since, at.time].map(Duration::from_nanos);
            (launch, self.begin + since, time)
        })
    }
}

/// Launches that a device receives at once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Replay {
    /// Where.
    pub device: DeviceType,
    /// The launches, with the time that each took when they were made one by one; empty if they
    /// never were.
    pub launches: Vec<(Arc<LaunchInfo>, Duration)>,
}

/// The host's activity.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HostWork {
    /// Choosing devices.
    Plan,
    /// Making a program.
    Compile,
    /// A run of a graph, or its queueing if the device then works alone.
    Run,
    /// A [named](crate::Runtime::span) range of the caller.
    Range,
}

/// An event.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A device has executed launches.
    Launched(LaunchTimes<'a>),
    /// A device has executed launches that it received at once.
    Replayed {
        /// The launches.
        replay: &'a Arc<Replay>,
        /// Start.
        begin: Instant,
        /// Duration.
        time: Duration,
    },
    /// Bytes were copied; the host is [`DeviceType::Cpu`].
    Moved {
        /// Source device.
        from: DeviceType,
        /// Target device.
        to: DeviceType,
        /// Number of bytes.
        bytes: u64,
        /// Start.
        begin: Instant,
        /// For how long the host has waited for it.
        time: Duration,
    },
    /// This thread begins a span, inside of the spans it has begun before.
    Begun {
        /// The kind.
        work: HostWork,
        /// The name.
        name: &'a str,
    },
    /// This thread has ended its latest span.
    Ended,
    /// The memory of tensors and programs on a device has changed.
    Memory {
        /// The device.
        device: DeviceType,
        /// Bytes that they have now.
        bytes: u64,
    },
    /// A device failed, and the runtime continued without it.
    FellBack(&'a Fallback),
}

/// Receives events, on the threads that cause them.
pub trait Observer: Send + Sync {
    /// Something happened. The devices wait until this returns.
    fn saw(&self, event: Event<'_>);

    /// Returns whether it needs the times of each launch. Devices are then a little slower. Otherwise it gets only
    /// the host's events.
    fn wants_launches(&self) -> bool {
        true
    }
}

/// All observers, at a moment.
#[derive(Clone)]
pub(crate) struct Observers(Arc<[Arc<dyn Observer>]>);

impl Observers {
    pub(crate) fn saw(&self, event: Event<'_>) {
        self.0.iter().for_each(|observer| observer.saw(event));
    }

    pub(crate) fn want_launches(&self) -> bool {
        self.0.iter().any(|observer| observer.wants_launches())
    }
}

/// The place of a runtime's observers.
pub(crate) struct Gallery {
    is_taken: AtomicBool,
    observers: RwLock<Observers>,
}

impl Default for Gallery {
    fn default() -> Self {
        Self {
            is_taken: AtomicBool::new(false),
            observers: RwLock::new(Observers(Arc::new([]))),
        }
    }
}

impl fmt::Debug for Gallery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.observers().map_or(0, |observers| observers.0.len());
        write!(f, "{count} observers")
    }
}

impl Gallery {
    /// The observers, if there are any.
    pub(crate) fn observers(&self) -> Option<Observers> {
        if !self.is_taken.load(Ordering::Relaxed) {
            return None;
        }
        let observers = self.observers.read();
        Some(observers.unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// Reports an event to observers.
    pub(crate) fn tell<'a>(&self, event: impl FnOnce() -> Event<'a>) {
        if let Some(observers) = self.observers() {
            observers.saw(event());
        }
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Arc<dyn Observer>>)) {
        let observers = self.observers.write();
        let mut observers = observers.unwrap_or_else(PoisonError::into_inner);
        let mut all = observers.0.to_vec();
        change(&mut all);
        self.is_taken.store(!all.is_empty(), Ordering::Relaxed);
        *observers = Observers(all.into());
    }

    pub(crate) fn add(&self, observer: Arc<dyn Observer>) {
        self.change(|all| all.push(observer));
    }

    pub(crate) fn remove(&self, observer: &Arc<dyn Observer>) {
        self.change(|all| all.retain(|other| !Arc::ptr_eq(other, observer)));
    }

    /// Begins something on this thread.
    pub(crate) fn begin<N: AsRef<str>>(&self, work: HostWork, name: impl FnOnce() -> N) -> Span {
        let observers = self.observers();
        if let Some(observers) = &observers {
            let name = name();
            let name = name.as_ref();
            observers.saw(Event::Begun { work, name });
        }
        Span(observers)
    }
}

/// Guard of a host activity on the same thread, which ends when this is dropped.
#[must_use = "it ends when it is dropped"]
pub struct Span(Option<Observers>);

impl Drop for Span {
    fn drop(&mut self) {
        if let Some(observers) = &self.0 {
            observers.saw(Event::Ended);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Default)]
    struct Notes(Mutex<Vec<String>>);

    impl Observer for Notes {
        fn saw(&self, event: Event<'_>) {
            self.0.lock().unwrap().push(match event {
                Event::Begun { name, .. } => format!("begin {name}"),
                Event::Ended => "end".to_owned(),
                other => format!("{other:?}"),
            });
        }
    }

    #[test]
    fn those_who_look_on_are_told_while_they_do() {
        let gallery = Gallery::default();
        drop(gallery.begin(HostWork::Plan, || -> &str { panic!("nobody asks") }));
        let notes = Arc::new(Notes::default());
        let observer: Arc<dyn Observer> = notes.clone();
        gallery.add(observer.clone());
        let span = gallery.begin(HostWork::Range, || "a");
        drop(gallery.begin(HostWork::Range, || "b"));
        gallery.remove(&observer);
        // The observer sees the end of a span that it saw begin.
        drop(span);
        drop(gallery.begin(HostWork::Range, || "c"));
        let expected = ["begin a", "begin b", "end", "end"];
        assert_eq!(*notes.0.lock().unwrap(), expected);
    }
}
