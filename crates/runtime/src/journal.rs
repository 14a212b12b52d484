//! Events on the devices of a runtime: failures, accesses, copies.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustorch_ir::Graph;
use rustorch_ir::order::sort_by_key;

use crate::observer::Gallery;
use crate::platform::Instant;
use crate::{DeviceError, DeviceInfo, DeviceType, Event, FailureClass, Fallback};

/// Failures that a runtime remembers.
const REMEMBERED_FALLBACKS: usize = 1000;

/// Locks, also after a panic: nothing here is left half-written by one.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Source and target of copied bytes; the host goes by [`DeviceType::Cpu`].
type Way = (DeviceType, DeviceType);

/// Why a graph was planned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
    New,
    Evicted,
    Outdated,
    Failed,
    Compiled,
}

/// Statistics of a runtime's plans, by [`Runtime::plans`](crate::Runtime::plans).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PlanCounters {
    /// Graphs that were planned for the first time.
    pub new: u64,
    /// Plans made again because the first one had been evicted.
    pub evicted: u64,
    /// Plans made again because routes, rules, measured times or knowledge of devices had changed.
    pub outdated: u64,
    /// Plans made again because a device failed in a run.
    pub failed: u64,
    /// Plans made again because a program was compiled in the background, or failed to be.
    pub compiled: u64,
    /// Runs that found their graph's plan in the cache.
    pub reused: u64,
    /// Plans that are in the cache.
    pub kept: usize,
    /// Their approximate size in bytes.
    pub bytes: usize,
}

/// A graph in a few words.
struct Summary<'a>(&'a Graph);

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes = self.0.nodes();
        match nodes {
            [] => f.write_str("a graph without operations"),
            [node] => write!(f, "{} {}", node.op.name(), node.output()),
            [first, .., last] => {
                let (first, last) = (first.op.name(), last.op.name());
                write!(f, "{} operations from {first} to {last}", nodes.len())
            }
        }
    }
}

/// The record of one runtime.
#[derive(Debug)]
pub(crate) struct Journal {
    start: Instant,
    /// Counter of changes that make plans outdated.
    epoch: AtomicU64,
    /// The last of it.
    outdated_by: Mutex<&'static str>,
    /// Plans that were made, by [`Cause`].
    plans: [AtomicU64; 5],
    fallbacks: Mutex<Vec<Fallback>>,
    faults: Mutex<HashMap<(DeviceType, FailureClass), u64>>,
    moved: Mutex<HashMap<Way, Moved>>,
    conversions: AtomicU64,
    /// Operations that were computed.
    computed: AtomicU64,
    /// The observers of all this.
    pub(crate) gallery: Gallery,
}

/// Bytes copied on one route, and number of copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Moved {
    /// Bytes.
    pub bytes: u64,
    /// Copies.
    pub copies: u64,
}

impl Journal {
    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
            epoch: AtomicU64::new(0),
            outdated_by: Mutex::new("nothing"),
            plans: Default::default(),
            fallbacks: Mutex::default(),
            faults: Mutex::default(),
            moved: Mutex::default(),
            conversions: AtomicU64::new(0),
            computed: AtomicU64::new(0),
            gallery: Gallery::default(),
        }
    }

    /// The epoch from which plans are made.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Plans made so far are outdated, because of this.
    pub(crate) fn outdate(&self, why: &'static str) {
        *lock(&self.outdated_by) = why;
        self.epoch.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts a plan that was made, and says so if it was not the first.
    pub(crate) fn planned(&self, graph: &Graph, cause: Cause) {
        self.plans[cause as usize].fetch_add(1, Ordering::Relaxed);
        let why = match cause {
            Cause::New => return tracing::debug!("planned {}", Summary(graph)),
            Cause::Evicted => "its plan was evicted to bound the memory of plans",
            Cause::Outdated => *lock(&self.outdated_by),
            Cause::Failed => "a run of it failed",
            Cause::Compiled => "a program of it was compiled in the background",
        };
        tracing::info!("planned {} again: {why}", Summary(graph));
    }

    /// Number of plans that were made, and the reasons.
    pub(crate) fn plan_counters(&self) -> PlanCounters {
        let of = |cause| self.plans[cause as usize].load(Ordering::Relaxed);
        PlanCounters {
            new: of(Cause::New),
            evicted: of(Cause::Evicted),
            outdated: of(Cause::Outdated),
            failed: of(Cause::Failed),
            compiled: of(Cause::Compiled),
            ..PlanCounters::default()
        }
    }

    /// Counts a failure that ended a run.
    pub(crate) fn count_fault(&self, error: &DeviceError) {
        let mut faults = lock(&self.faults);
        *faults.entry((error.device, error.class)).or_default() += 1;
    }

    /// Records a failure that did not end a run, or a device's loss.
    pub(crate) fn fell_back(&self, fallback: Fallback) {
        tracing::warn!("{fallback}");
        self.gallery.tell(|| Event::FellBack(&fallback));
        self.count_fault(&fallback.error);
        let mut fallbacks = lock(&self.fallbacks);
        if fallbacks.len() < REMEMBERED_FALLBACKS {
            fallbacks.push(fallback);
        }
    }

    pub(crate) fn fallbacks(&self) -> Vec<Fallback> {
        lock(&self.fallbacks).clone()
    }

    pub(crate) fn faults(&self) -> FaultStatistics {
        let faults = lock(&self.faults);
        let mut faults: Vec<_> = faults.iter().map(|(&(d, c), &n)| (d, c, n)).collect();
        sort_by_key(&mut faults, |(device, class, _)| {
            (device.to_string(), class.to_string())
        });
        FaultStatistics(faults)
    }

    /// The clock, if an observer needs it.
    pub(crate) fn clock(&self) -> Option<Instant> {
        self.gallery.observers().map(|_| Instant::now())
    }

    /// Counts bytes that were copied, since `begin` if that is known.
    pub(crate) fn moved(
        &self,
        from: DeviceType,
        to: DeviceType,
        bytes: usize,
        begin: Option<Instant>,
    ) {
        if let Some(begin) = begin {
            self.gallery.tell(|| Event::Moved {
                from,
                to,
                bytes: bytes as u64,
                begin,
                time: begin.elapsed(),
            });
        }
        let mut moved = lock(&self.moved);
        let way = moved.entry((from, to)).or_default();
        way.bytes += bytes as u64;
        way.copies += 1;
    }

    pub(crate) fn ways(&self) -> HashMap<Way, Moved> {
        lock(&self.moved).clone()
    }

    pub(crate) fn count_conversions(&self, count: u64) {
        if count > 0 {
            self.conversions.fetch_add(count, Ordering::Relaxed);
        }
    }

    pub(crate) fn count_computed(&self, count: u64) {
        self.computed.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn computed(&self) -> u64 {
        self.computed.load(Ordering::Relaxed)
    }

    pub(crate) fn conversions(&self) -> u64 {
        self.conversions.load(Ordering::Relaxed)
    }
}

/// A device of some runtime, as storages know it.
#[derive(Debug)]
pub(crate) struct Owner {
    pub(crate) device: DeviceType,
    pub(crate) shares_host_memory: bool,
    pub(crate) journal: Arc<Journal>,
    lost: AtomicBool,
    accesses: AtomicU64,
    /// Nanoseconds from the journal's start to the last access, and one; 0 for none.
    last_access: AtomicU64,
    in_use: AtomicU64,
    peak: AtomicU64,
    /// Bytes that programs work in.
    scratch: AtomicU64,
    /// Bytes that may be taken in all.
    limit: AtomicU64,
}

impl Owner {
    pub(crate) fn new(info: &DeviceInfo, journal: Arc<Journal>) -> Arc<Self> {
        Arc::new(Self {
            device: info.device,
            shares_host_memory: info.shares_host_memory,
            journal,
            lost: AtomicBool::new(false),
            accesses: AtomicU64::new(0),
            last_access: AtomicU64::new(0),
            in_use: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            scratch: AtomicU64::new(0),
            limit: AtomicU64::new(u64::MAX),
        })
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// The device is avoided from now on.
    pub(crate) fn set_lost(&self) {
        if !self.lost.swap(true, Ordering::AcqRel) {
            self.journal.outdate("a device was lost");
        }
    }

    /// The device could not return its data. It is lost then, unless the data is
    /// [poisoned](crate::DeviceBuffer::is_poisoned).
    pub(crate) fn fail(&self, error: DeviceError) {
        if error.class != FailureClass::Caller && !self.is_lost() {
            self.set_lost();
            self.journal.fell_back(Fallback { error, to: None });
        }
    }

    /// Counts uses of buffers.
    pub(crate) fn accessed(&self, count: usize) {
        let now = self.journal.start.elapsed().as_nanos() as u64 + 1;
        self.accesses.fetch_add(count as u64, Ordering::Relaxed);
        self.last_access.store(now, Ordering::Relaxed);
    }

    /// Counts bytes that the host read, since `begin` if that is known.
    pub(crate) fn read(&self, bytes: usize, begin: Option<Instant>) {
        self.accessed(1);
        (self.journal).moved(self.device, DeviceType::Cpu, bytes, begin);
    }

    pub(crate) fn accesses(&self) -> AccessCounters {
        let last = self.last_access.load(Ordering::Relaxed).checked_sub(1);
        AccessCounters {
            accesses: self.accesses.load(Ordering::Relaxed),
            last_access: last.map(|ns| self.journal.start + Duration::from_nanos(ns)),
        }
    }

    /// From now on, no more than this may be taken in all.
    pub(crate) fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    /// Bytes that the limit leaves; `None` without one.
    pub(crate) fn left(&self) -> Option<u64> {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let limit = Some(load(&self.limit)).filter(|&limit| limit < u64::MAX);
        let taken = load(&self.in_use) + load(&self.scratch);
        limit.map(|limit| limit.saturating_sub(taken))
    }

    /// May so much more be taken?
    ///
    /// # Errors
    /// Fails as out of memory if the bytes exceed the limit.
    pub(crate) fn admit(&self, bytes: usize) -> Result<(), DeviceError> {
        let (limit, bytes) = (self.limit.load(Ordering::Relaxed), bytes as u64);
        match self.left().filter(|&left| bytes > left) {
            None => Ok(()),
            Some(left) => {
                let never_fits = bytes > limit;
                let class = FailureClass::OutOfMemory { never_fits };
                let message = format!("{bytes} bytes of {left} that a limit of {limit} leaves");
                Err(DeviceError::new(self.device, class, message))
            }
        }
    }

    /// Counts memory that programs work in, until the lease is dropped.
    ///
    /// # Errors
    /// The same errors as [`Self::admit`].
    pub(crate) fn lease(self: &Arc<Self>, bytes: usize) -> Result<Lease, DeviceError> {
        self.admit(bytes)?;
        self.scratch.fetch_add(bytes as u64, Ordering::Relaxed);
        self.tell_memory();
        Ok(Lease(self.clone(), bytes as u64))
    }

    /// Counts memory that was taken on the device.
    pub(crate) fn took(&self, bytes: usize) {
        let bytes = bytes as u64;
        let now = self.in_use.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.peak.fetch_max(now, Ordering::Relaxed);
        if bytes > 0 {
            self.tell_memory();
        }
    }

    /// Counts memory that was given back.
    pub(crate) fn gave(&self, bytes: usize) {
        self.in_use.fetch_sub(bytes as u64, Ordering::Relaxed);
        if bytes > 0 {
            self.tell_memory();
        }
    }

    /// Reports the device's memory in use to observers.
    pub(crate) fn tell_memory(&self) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        self.journal.gallery.tell(|| Event::Memory {
            device: self.device,
            bytes: load(&self.in_use) + load(&self.scratch),
        });
    }

    /// Bytes that tensors have on the device now, and had at most.
    pub(crate) fn usage(&self) -> (u64, u64) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (load(&self.in_use), load(&self.peak))
    }
}

/// Memory that a program works in.
#[derive(Debug)]
pub(crate) struct Lease(Arc<Owner>, u64);

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.scratch.fetch_sub(self.1, Ordering::Relaxed);
        self.0.tell_memory();
    }
}

/// Number of times that a device used tensors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AccessCounters {
    /// It counts operands and results of the segments that it ran, and reads by the host.
    pub accesses: u64,
    /// Time of the last access.
    pub last_access: Option<Instant>,
}

/// The failures of devices, counted by device and class.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FaultStatistics(pub Vec<(DeviceType, FailureClass, u64)>);

impl FaultStatistics {
    /// Number of all failures.
    pub fn total(&self) -> u64 {
        self.0.iter().map(|(.., count)| count).sum()
    }

    /// The failures of one device.
    pub fn of(&self, device: DeviceType) -> u64 {
        let its = self.0.iter().filter(|(d, ..)| *d == device);
        its.map(|(.., count)| count).sum()
    }
}

impl fmt::Display for FaultStatistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |(device, class, count)| format!("{device}: {class} × {count}");
        let lines: Vec<String> = self.0.iter().copied().map(line).collect();
        f.write_str(&lines.join(", "))
    }
}
