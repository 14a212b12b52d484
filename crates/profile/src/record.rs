//! The record, in a form that can be kept.

use std::cell::Cell;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustorch_runtime::{DeviceType, Event, Fallback, HostWork, LaunchInfo, LaunchTime, Replay};

/// Something that was seen.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// Time, or start: nanoseconds since the beginning.
    pub(crate) at: u64,
    /// The thread on which it was.
    pub(crate) thread: u32,
    pub(crate) what: What,
}

/// The event. Times are in nanoseconds.
#[derive(Clone, Debug)]
pub(crate) enum What {
    /// The same as [`LaunchTimes`](rustorch_runtime::LaunchTimes) are, whose times count from when the record is of.
    Launched {
        launches: Arc<Vec<Arc<LaunchInfo>>>,
        first: usize,
        /// Number of reported events.
        count: usize,
    },
    Replayed {
        replay: Arc<Replay>,
        time: u64,
    },
    Moved {
        from: DeviceType,
        to: DeviceType,
        bytes: u64,
        time: u64,
    },
    Begun {
        work: HostWork,
        name: Arc<str>,
    },
    Ended,
    Memory {
        device: DeviceType,
        bytes: u64,
    },
    FellBack(Box<Fallback>),
    /// A driver's figure of its device.
    Figure {
        gpu: Gpu,
        name: &'static str,
        value: f64,
    },
    /// A gap before the following events: open ranges are over.
    Cut,
    /// So many were not kept, because they came faster than they could be written.
    Dropped(u64),
}

/// A GPU as its driver names it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Gpu {
    /// A device of the runtime.
    Device(DeviceType),
    /// A device that could not be identified.
    Other(Arc<str>),
}

/// The device whose work a copy is: the one that is not the host.
pub(crate) fn copier(from: DeviceType, to: DeviceType) -> DeviceType {
    match to {
        DeviceType::Cpu => from,
        device => device,
    }
}

impl Record {
    /// `event` as of now on this thread, without the times of launches; `None` for unknown events.
    pub(crate) fn of(event: &Event<'_>, start: Instant) -> Option<Self> {
        let now = || since(start, Instant::now());
        let (at, what) = match *event {
            Event::Launched(launched) => {
                let what = What::Launched {
                    launches: launched.launches.clone(),
                    first: launched.first,
                    count: launched.times.len(),
                };
                (since(start, launched.begin), what)
            }
            Event::Replayed {
                replay,
                begin,
                time,
            } => {
                let (replay, time) = (replay.clone(), nanoseconds(time));
                (since(start, begin), What::Replayed { replay, time })
            }
            Event::Moved {
                from,
                to,
                bytes,
                begin,
                time,
            } => {
                let time = nanoseconds(time);
                let moved = What::Moved {
                    from,
                    to,
                    bytes,
                    time,
                };
                (since(start, begin), moved)
            }
            Event::Begun { work, name } => {
                let name = name.into();
                (now(), What::Begun { work, name })
            }
            Event::Ended => (now(), What::Ended),
            Event::Memory { device, bytes } => (now(), What::Memory { device, bytes }),
            Event::FellBack(fallback) => (now(), What::FellBack(Box::new(fallback.clone()))),
            _ => return None,
        };
        let thread = this_thread();
        Some(Self { at, thread, what })
    }

    /// Number of its events.
    pub(crate) fn count(&self) -> usize {
        match self.what {
            What::Launched { count, .. } => count,
            _ => 1,
        }
    }
}

/// The events, in order. Times of launches are beside it, so that there is no memory of each record's own.
#[derive(Default)]
pub(crate) struct Records {
    all: Vec<Record>,
    times: Vec<LaunchTime>,
}

impl Records {
    /// Adds a record; `times` are those of its launches, if it is of some.
    pub(crate) fn push(&mut self, record: Record, times: &[LaunchTime]) {
        self.times.extend_from_slice(times);
        self.all.push(record);
    }

    /// Each record, with the times of its launches.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Record, &[LaunchTime])> {
        let mut left = &self.times[..];
        self.all.iter().map(move |record| {
            let count = match record.what {
                What::Launched { count, .. } => count,
                _ => 0,
            };
            let (times, others) = left.split_at(count);
            left = others;
            (record, times)
        })
    }

    /// Forgets all, and gives memory back beyond that of `events` events.
    pub(crate) fn clear(&mut self, events: usize) {
        self.all.clear();
        self.times.clear();
        self.all.shrink_to(events);
        self.times.shrink_to(events);
    }
}

/// Nanoseconds from the beginning to a moment; 0 for those before.
pub(crate) fn since(start: Instant, moment: Instant) -> u64 {
    nanoseconds(moment.saturating_duration_since(start))
}

/// A time in whole nanoseconds.
pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The names of the threads that were seen.
static THREADS: Mutex<Vec<Option<String>>> = Mutex::new(Vec::new());

/// The number of this thread, from 1 on.
pub(crate) fn this_thread() -> u32 {
    thread_local! {
        static NUMBER: Cell<u32> = const { Cell::new(0) };
    }
    if NUMBER.get() == 0 {
        let mut threads = THREADS.lock().unwrap_or_else(PoisonError::into_inner);
        threads.push(thread::current().name().map(str::to_owned));
        NUMBER.set(threads.len() as u32);
    }
    NUMBER.get()
}

/// The name of the thread with a number.
pub(crate) fn thread_name(number: u32) -> String {
    let threads = THREADS.lock().unwrap_or_else(PoisonError::into_inner);
    let named = threads.get((number as usize).wrapping_sub(1)).cloned();
    named
        .flatten()
        .unwrap_or_else(|| format!("thread {number}"))
}
