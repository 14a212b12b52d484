//! The record of writes that handles on the same memory share.
//!
//! Clones and views see a write through any handle, even if that handle is dropped before anything is computed:
//! the group of them keeps it ([`Writes`]). A write changes the tensor that a view shows, as PyTorch's `CopySlices`
//! does. It also changes the history of that tensor and its other views. Handles know of it by a [`Base`], which a
//! tensor's handle makes when it is first cloned or viewed. Only handles hold one, never a history, so that no
//! history holds itself.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use rustorch_ir::{DType, Layout, Shape};
use rustorch_runtime::{Moment, Storage};
use smallvec::SmallVec;

use super::enable_grad;
use super::track::Track;
use crate::Tensor;
use crate::error::{RusTorchError, RusTorchResult};
use crate::lazy::value::{Value, View, WeakValue};

/// State that a tensor's handle shares with its clones and views.
pub(crate) struct Base {
    /// The tensor, as long as it has another handle.
    root: Option<WeakValue>,
    /// Was it written over, with gradients in play?
    is_changed: AtomicBool,
    state: Mutex<State>,
    /// Shared with handles on the same memory whose gradients differ, once there are such, or a write.
    writes: OnceLock<Arc<Writes>>,
}

/// The writes over memory that several handles show.
#[derive(Default)]
pub(crate) struct Writes {
    /// Lock for recording a write, so that writes of several threads come one after the other.
    turn: Mutex<()>,
    /// Was there any?
    is_any: AtomicBool,
    last: Mutex<Last>,
    /// Writes over the tensors that this memory is a copy of, where PyTorch has a view.
    copied: SmallVec<[Weak<Writes>; 1]>,
}

/// The last writes, until they are computed: the memory's id and the tensor with it. Views that turned out to be copies
/// have their own memory.
type Last = SmallVec<[(usize, Value); 1]>;

struct State {
    /// The tensor's shape.
    shape: Shape,
    /// Track of the value's computation.
    track: Option<Arc<Track>>,
    /// Moment at which its elements were those of that track.
    moment: Moment,
    /// Its memory, once it was written over.
    memory: Option<Storage>,
    /// Tracks of its views since then.
    views: Vec<(Layout, Arc<Track>)>,
}

/// The track of a value's elements in another shape.
fn in_shape(value: &Value, track: &Arc<Track>, shape: &Shape) -> Option<Arc<Track>> {
    if value.ty().shape == *shape {
        return Some(track.clone());
    }
    let written = Tensor::of(value.clone(), Some(track.clone()));
    enable_grad(|| written.reshape(&shape[..])).ok()?.track()
}

/// The base of some whole memory.
fn whole(memory: &Storage, shape: &Shape, dtype: DType) -> Value {
    Value::ready(dtype, None, View::whole(memory.clone(), shape))
}

impl Base {
    /// The state of a value with its track, for a new clone or view.
    pub(crate) fn new(root: &Value, track: Option<Arc<Track>>) -> Arc<Self> {
        Arc::new(Self::of(root, Some(root.downgrade()), track))
    }

    fn of(value: &Value, root: Option<WeakValue>, track: Option<Arc<Track>>) -> Self {
        let state = State {
            shape: value.ty().shape.clone(),
            track,
            moment: Moment::next(),
            memory: None,
            views: Vec::new(),
        };
        Self {
            root,
            is_changed: AtomicBool::new(false),
            state: Mutex::new(state),
            writes: OnceLock::new(),
        }
    }

    /// The state of a handle on the same memory with another track.
    pub(crate) fn beside(&self, value: &Value, track: Option<Arc<Track>>) -> Arc<Self> {
        self.with_writes(Self::of(value, Some(value.downgrade()), track))
    }

    /// The state of a view for which nothing is recorded.
    pub(crate) fn unrecorded(&self, view: &Value) -> Arc<Self> {
        self.with_writes(Self::of(view, None, None))
    }

    /// The state of a copy of it, where PyTorch has a view.
    pub(crate) fn copy(&self, copy: &Value, track: Option<Arc<Track>>) -> Arc<Self> {
        let of = self.writes();
        let copied = of.copied.iter().cloned().chain([Arc::downgrade(&of)]);
        let writes = Writes {
            copied: copied.collect(),
            ..Writes::default()
        };
        Arc::new(Self {
            writes: Arc::new(writes).into(),
            ..Self::of(copy, Some(copy.downgrade()), track)
        })
    }

    /// Is it a copy of a tensor that has a handle still, where PyTorch has a view?
    pub(crate) fn is_shown_copy(&self) -> bool {
        let writes = self.writes.get();
        writes.is_some_and(|writes| writes.copied.iter().any(|of| of.strong_count() > 0))
    }

    fn with_writes(&self, other: Self) -> Arc<Self> {
        Arc::new(Self {
            writes: self.writes().into(),
            ..other
        })
    }

    /// Writes that it shares with other handles on the memory.
    pub(crate) fn writes(&self) -> Arc<Writes> {
        self.writes.get_or_init(Arc::default).clone()
    }

    /// Is there no other handle on the memory than the one that has it?
    pub(crate) fn is_alone(this: &Arc<Self>) -> bool {
        let is_alone = |writes: &Arc<Writes>| Arc::strong_count(writes) == 1;
        Arc::strong_count(this) == 1 && this.writes.get().is_none_or(is_alone)
    }

    /// Keeps a write over all of some memory, `written`, for the other handles on that, until it is computed; its
    /// elements are computed like this.
    pub(crate) fn write(&self, memory: &Storage, written: &Value, track: Option<&Arc<Track>>) {
        let writes = self.writes.get_or_init(Arc::default);
        let entry = (memory.id(), written.clone());
        writes.without(memory).push(entry);
        writes.is_any.store(true, Ordering::Relaxed);
        let is_known = self.is_changed() || track.is_some() || self.state().track.is_some();
        if !is_known {
            self.state().moment = Moment::next();
        } else if self.is_of(memory, written.ty().dtype) {
            let shape = self.state().shape.clone();
            self.change(
                memory,
                track.and_then(|track| in_shape(written, track, &shape)),
            );
        }
    }

    /// Keeps a refused write, `failed`, so that the next use of the memory gets its error.
    pub(crate) fn refuse(&self, memory: &Storage, failed: &Value) {
        let writes = self.writes.get_or_init(Arc::default);
        writes.without(memory).push((memory.id(), failed.clone()));
        writes.is_any.store(true, Ordering::Relaxed);
    }

    /// Drops a write that is not made: its mistake was reported, or it is a trace's.
    pub(crate) fn forget(&self, written: &Value) {
        if let Some(writes) = self.writes.get() {
            let mut last = writes.last();
            last.retain(|(_, known)| known.key() != written.key());
        }
    }

    /// Something else was written over all of some memory.
    pub(crate) fn drop_write(&self, memory: &Storage) {
        if let Some(writes) = self.writes.get() {
            drop(writes.without(memory));
        }
    }

    /// Is this the tensor's memory, seen as this dtype?
    fn is_of(&self, memory: &Storage, dtype: DType) -> bool {
        let state = self.state();
        let root = self.root.as_ref().and_then(WeakValue::upgrade);
        match (&state.memory, root) {
            (Some(known), _) => known.same_as(memory),
            (None, Some(root)) => root.memory().is_some_and(|known| known.same_as(memory)),
            // Views of it are all that is left.
            (None, None) => dtype.bytes_of(&state.shape) == Some(memory.bytes()),
        }
    }

    /// Computes writes through other handles than the one on `value`, if that shows the memory.
    ///
    /// # Errors
    /// Fails if the computation fails.
    #[inline]
    pub(crate) fn settle(&self, value: &Value) -> RusTorchResult<()> {
        match self.writes.get() {
            Some(writes) if writes.is_any.load(Ordering::Relaxed) => {
                writes.settle(value, self.is_changed())
            }
            _ => Ok(()),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Was the tensor written over, with gradients in play?
    pub(crate) fn is_changed(&self) -> bool {
        self.is_changed.load(Ordering::Relaxed)
    }

    /// Is the tensor a leaf that wants a gradient?
    pub(crate) fn is_of_leaf(&self) -> bool {
        let state = self.state();
        let mut track = state.track.iter();
        track.any(|track| track.is_leaf() && track.is_wanted())
    }

    /// The tensor, seen by a view of this dtype. It has to be all of `memory`, and it is known how its elements are
    /// computed.
    pub(crate) fn root(&self, memory: &Storage, dtype: DType) -> Option<Tensor> {
        let state = self.state();
        let is_it = match (&state.memory, self.root.as_ref()?.upgrade()) {
            (Some(known), _) => known.same_as(memory),
            (None, Some(root)) => root.view().is_some_and(|view| {
                let is_whole = root.ty().dtype == dtype && view.is_whole(dtype);
                is_whole && view.storage.same_as(memory)
            }),
            // Views of it are all that is left.
            (None, None) => dtype.bytes_of(&state.shape) == Some(memory.bytes()),
        };
        let value = is_it.then(|| whole(memory, &state.shape, dtype))?;
        let is_known = state.track.is_none() || value.is_of(state.moment);
        is_known.then(|| Tensor::of(value, state.track.clone()))
    }

    /// The tensor's elements, in this memory, are now computed like this.
    pub(crate) fn change(&self, memory: &Storage, track: Option<Arc<Track>>) {
        let old = {
            let mut state = self.state();
            if let Some(track) = &track {
                track.retain_as(state.track.as_ref());
            }
            let new = State {
                shape: state.shape.clone(),
                track,
                moment: Moment::next(),
                memory: Some(memory.clone()),
                views: Vec::new(),
            };
            mem::replace(&mut *state, new)
        };
        self.is_changed.store(true, Ordering::Relaxed);
        // Histories can be long, and the lock is not needed for dropping them.
        drop(old);
    }

    /// The computation of a handle's elements, on the tensor or on a view of it, with the track `own`.
    pub(crate) fn track(&self, value: &Value, own: Option<&Arc<Track>>) -> Option<Arc<Track>> {
        let own = || own.cloned();
        let (root, layout) = {
            let state = self.state();
            let (Some(memory), Some(shown)) = (&state.memory, value.memory()) else {
                return own();
            };
            let is_newer = own().is_some_and(|track| track.id().0 > state.moment);
            // What strides could not show was a copy.
            if is_newer || !memory.same_as(&shown) {
                return own();
            }
            let layout = value.layout();
            if layout == Layout::contiguous(&state.shape) {
                return state.track.clone();
            }
            if let Some((_, track)) = state.views.iter().find(|(known, _)| *known == layout) {
                return Some(track.clone());
            }
            let track = state.track.clone()?;
            let value = whole(memory, &state.shape, value.ty().dtype);
            (Tensor::of(value, Some(track)), layout)
        };
        let view = enable_grad(|| root.restrided("as_strided", |_| layout.clone()));
        let track = view.ok()?.track()?;
        self.state().views.push((layout, track.clone()));
        Some(track)
    }
}

impl Writes {
    /// Waits for the turn to record a write.
    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn last(&self) -> MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The writes without those that are computed, and without that over this memory.
    fn without(&self, memory: &Storage) -> MutexGuard<'_, Last> {
        let mut last = self.last();
        last.retain(|(id, written)| *id != memory.id() && written.view().is_none());
        last
    }

    /// See [`Base::settle`]. A mistake is kept, or reported once: the memory is as it was then.
    fn settle(&self, value: &Value, keeps_mistakes: bool) -> RusTorchResult<()> {
        value.show();
        // Whoever else asks waits: it is written once.
        let mut last = self.last();
        let Some(memory) = value.memory() else {
            return Ok(());
        };
        let Some(at) = last.iter().position(|(id, _)| *id == memory.id()) else {
            return Ok(());
        };
        let write = value.written().zip(last[at].1.written());
        let is_shown = write.is_some_and(|(shown, last)| shown.moment >= last.moment);
        if is_shown || last[at].1.key() == value.key() {
            return Ok(());
        }
        let result = Tensor::of(last[at].1.clone(), None).eval().map(|_| ());
        let is_refused = last[at].1.is_failed();
        let is_over =
            |error: &RusTorchError| is_refused || !keeps_mistakes && !error.is_device_error();
        if result.as_ref().err().is_none_or(is_over) {
            last.remove(at);
        }
        value.show();
        result
    }
}
