//! State of a handle that requires a gradient.

use std::collections::BTreeSet;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustorch_ir::{Op, Role};
use rustorch_runtime::Moment;
use smallvec::SmallVec;

use crate::Tensor;
use crate::error::RusTorchResult;
use crate::lazy::value::{Pending, Value};

/// A function that is called with a gradient, and may give another one.
pub(super) type Hook = dyn Fn(&Tensor) -> RusTorchResult<Option<Tensor>> + Send + Sync;

/// State of a handle and its clones.
pub(crate) struct Track {
    id: TrackId,
    is_leaf: bool,
    /// For a leaf: is its gradient wanted still? All handles that have the track hear of it.
    is_wanted: AtomicBool,
    /// Counts how often a leaf was given other memory.
    data_changes: AtomicU32,
    /// Record of the computation; none for a leaf.
    record: Mutex<Option<Record>>,
    gradient: Mutex<Option<Tensor>>,
    /// Is the gradient kept though it is no leaf?
    retains: AtomicBool,
    hooks: Mutex<Vec<(u64, Arc<Hook>)>>,
}

/// Tells tracked values from others: when the operation was recorded, and which of its results it is. An
/// operation's operands come before it. Leaves have a moment of their own.
pub(super) type TrackId = (Moment, usize);

/// An operation, with the tracks of its operands.
#[derive(Clone)]
pub(super) struct Record {
    pub(super) step: Step,
    pub(super) inputs: Tracks,
    /// All results of an operation with several: a gradient may need unread ones, too.
    pub(super) results: Vec<Value>,
}

/// Origin of results.
#[derive(Clone)]
pub(super) enum Step {
    /// Computed by an operation.
    Operation(Arc<Pending>),
    /// Computed by a function without kept values. It is called again when the gradient is needed,
    /// and recorded then.
    Again(Arc<dyn Fn() -> RusTorchResult<Tensor> + Send + Sync>),
}

/// The tracks of operands, as far as they have one.
pub(crate) type Tracks = SmallVec<[Option<Arc<Track>>; 4]>;

/// Hooks are numbered in the order in which they come.
static HOOKS: AtomicU64 = AtomicU64::new(0);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Track {
    fn new(id: TrackId, record: Option<Record>) -> Arc<Self> {
        Arc::new(Self {
            id,
            is_leaf: record.is_none(),
            is_wanted: AtomicBool::new(true),
            data_changes: AtomicU32::new(0),
            record: Mutex::new(record),
            gradient: Mutex::default(),
            retains: AtomicBool::default(),
            hooks: Mutex::default(),
        })
    }

    pub(super) fn leaf() -> Arc<Self> {
        Self::new((Moment::next(), 0), None)
    }

    /// The track of a result of an operation, `value`; `results` are all if there are several.
    pub(crate) fn result(
        pending: Arc<Pending>,
        inputs: Tracks,
        value: &Value,
        results: &[Value],
    ) -> Arc<Self> {
        let id = (pending.recorded, value.result());
        let results = match results {
            [] => vec![value.clone()],
            all => all.to_vec(),
        };
        let step = Step::Operation(pending);
        Self::new(
            id,
            Some(Record {
                step,
                inputs,
                results,
            }),
        )
    }

    /// The track of a function's result, for a function that is called again.
    pub(crate) fn again(
        inputs: &[&Tensor],
        result: &Tensor,
        f: impl Fn() -> RusTorchResult<Tensor> + Send + Sync + 'static,
    ) -> Arc<Self> {
        let record = Record {
            step: Step::Again(Arc::new(f)),
            inputs: inputs.iter().map(|input| input.track()).collect(),
            results: vec![result.value().clone()],
        };
        Self::new((Moment::next(), 0), Some(record))
    }

    /// Has a track of a function that is called again call another one, which gives the same.
    pub(crate) fn call_again(
        &self,
        f: impl Fn() -> RusTorchResult<Tensor> + Send + Sync + 'static,
    ) {
        let old = (lock(&self.record).as_mut())
            .map(|record| mem::replace(&mut record.step, Step::Again(Arc::new(f))));
        drop(old);
    }

    /// The bytes recorded since then on the way to this value, with operands that its operations read without a
    /// gradient. Views count nothing: they are of other values' memory.
    pub(crate) fn bytes_since(self: &Arc<Self>, begun: Moment) -> usize {
        let is_view = |pending: &Pending| pending.op.def().role() == Role::View;
        let mut counted = BTreeSet::new();
        let mut bytes = 0;
        let mut count = |value: &Value| {
            if counted.insert(value.key()) {
                bytes += value.ty().bytes();
            }
        };
        let (mut seen, mut next) = (BTreeSet::new(), vec![self.clone()]);
        while let Some(track) = next.pop() {
            let moment = track.id.0;
            if track.is_leaf || moment < begun || !seen.insert(moment) {
                continue;
            }
            let Some(record) = track.record() else {
                continue;
            };
            if let Step::Operation(pending) = &record.step {
                let operands = pending.inputs.iter().zip(&record.inputs);
                for (value, _) in operands.filter(|(_, track)| track.is_none()) {
                    let made = value.pending();
                    if made.is_some_and(|made| made.recorded >= begun && !is_view(&made)) {
                        count(value);
                    }
                }
                if is_view(pending) {
                    next.extend(record.inputs.into_iter().flatten());
                    continue;
                }
            }
            record.results.iter().for_each(&mut count);
            next.extend(record.inputs.into_iter().flatten());
        }
        bytes
    }

    pub(super) fn id(&self) -> TrackId {
        self.id
    }

    /// Is it the track of the same computation?
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.id == other.id
    }

    pub(crate) fn is_leaf(&self) -> bool {
        self.is_leaf
    }

    /// Does this tensor require a gradient?
    pub(crate) fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Relaxed)
    }

    /// Says of a leaf whether its gradient is wanted.
    pub(super) fn want(&self, is_wanted: bool) {
        self.is_wanted.store(is_wanted, Ordering::Relaxed);
    }

    /// Number of times that the leaf was given other memory.
    pub(super) fn data_changes(&self) -> u32 {
        self.data_changes.load(Ordering::Relaxed)
    }

    /// Notes that the leaf was given other memory.
    pub(super) fn change_data(&self) {
        self.data_changes.fetch_add(1, Ordering::Relaxed);
    }

    /// Record of the computation, if it is still known.
    pub(super) fn record(&self) -> Option<Record> {
        lock(&self.record).clone()
    }

    /// Forgets how it was computed.
    pub(super) fn forget(&self) {
        let forgotten = lock(&self.record).take();
        drop(forgotten);
    }

    pub(super) fn gradient(&self) -> Option<Tensor> {
        lock(&self.gradient).clone()
    }

    pub(super) fn set_gradient(&self, gradient: Option<Tensor>) {
        let old = mem::replace(&mut *lock(&self.gradient), gradient);
        drop(old);
    }

    /// Is the gradient kept?
    pub(super) fn retains(&self) -> bool {
        self.is_leaf || self.retains.load(Ordering::Relaxed)
    }

    pub(super) fn retain(&self) {
        self.retains.store(true, Ordering::Relaxed);
    }

    /// Keeps the gradient of elements that were written over others, if that of those was to be kept.
    pub(crate) fn retain_as(&self, old: Option<&Arc<Self>>) {
        if old.is_some_and(|old| !old.is_leaf && old.retains()) {
            self.retain();
        }
    }

    /// Adds a hook, and returns its number.
    pub(super) fn add_hook(&self, hook: Arc<Hook>) -> u64 {
        let number = HOOKS.fetch_add(1, Ordering::Relaxed);
        lock(&self.hooks).push((number, hook));
        number
    }

    pub(super) fn remove_hook(&self, number: u64) {
        lock(&self.hooks).retain(|(other, _)| *other != number);
    }

    /// The hooks in the order in which they came.
    pub(super) fn hooks(&self) -> Vec<Arc<Hook>> {
        let hooks = lock(&self.hooks);
        hooks.iter().map(|(_, hook)| hook.clone()).collect()
    }
}

impl Drop for Track {
    /// A history can be long: it is taken apart in a loop, not by recursion.
    fn drop(&mut self) {
        let take = |track: &mut Self| {
            let record = track.record.get_mut();
            record.unwrap_or_else(PoisonError::into_inner).take()
        };
        let mut rest: Vec<Record> = take(self).into_iter().collect();
        while let Some(mut record) = rest.pop() {
            let tracks = mem::take(&mut record.inputs).into_iter().flatten();
            let mut tracks = tracks.filter_map(Arc::into_inner);
            rest.extend(tracks.by_ref().filter_map(|mut track| take(&mut track)));
        }
    }
}

/// Record of a tensor's computation.
pub struct Recorded {
    /// The operation.
    pub op: Op,
    /// Its operands, each tracked if its gradient is needed.
    pub inputs: Vec<Tensor>,
    /// Its results, without gradients.
    pub results: Vec<Tensor>,
    /// The tensor's index among the results.
    pub result: usize,
}

impl Tensor {
    /// The operation that computed a tracked tensor; `None` for leaves and
    /// [forgotten](Tensor::forget) histories.
    pub fn recorded(&self) -> Option<Recorded> {
        let record = self.track()?.record()?;
        let Step::Operation(pending) = &record.step else {
            return None;
        };
        let operands = pending.inputs.iter().zip(record.inputs);
        Some(Recorded {
            op: pending.op.clone(),
            inputs: operands
                .map(|(value, track)| Self::of(value.clone(), track))
                .collect(),
            results: (record.results.into_iter())
                .map(|value| Self::of(value, None))
                .collect(),
            result: self.value().result(),
        })
    }

    /// Drops the history of the tensor, for all its handles, as a backward pass does after using
    /// it.
    pub fn forget(&self) {
        if let Some(track) = self.track() {
            track.forget();
        }
    }
}
