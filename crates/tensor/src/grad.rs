//! Gradients that are wanted: which tensors keep how they were computed.
//!
//! A value forgets its history when it is computed. A *tracked* handle keeps it beside the value,
//! until [`Tensor::forget`] or its drop. Operations know nothing of this, so that graphs are the
//! same with it and without.

use std::cell::Cell;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use rustorch_ir::{DType, Op};
use rustorch_macros::track_calls;
use smallvec::SmallVec;

use crate::Tensor;
use crate::error::{RusTorchResult, require};
use crate::value::{Pending, Value};

/// What a handle that wants a gradient keeps.
pub(crate) struct Track {
    /// How it was computed; of a leaf nothing.
    record: Mutex<Option<Record>>,
    is_leaf: bool,
}

/// An operation, with the tracks of its operands.
struct Record {
    pending: Arc<Pending>,
    inputs: Tracks,
    /// All results of an operation of several: a gradient may need those too that nobody reads.
    results: Vec<Value>,
}

/// The tracks of operands, as far as they have one.
pub(crate) type Tracks = SmallVec<[Option<Arc<Track>>; 4]>;

impl Track {
    fn leaf() -> Arc<Self> {
        Arc::new(Self {
            record: Mutex::default(),
            is_leaf: true,
        })
    }

    /// The track of what an operation gives; `results` are all of them if there are several.
    pub(crate) fn result(pending: Arc<Pending>, inputs: Tracks, results: &[Value]) -> Arc<Self> {
        let record = Record {
            pending,
            inputs,
            results: results.to_vec(),
        };
        Arc::new(Self {
            record: Mutex::new(Some(record)),
            is_leaf: false,
        })
    }

    fn take(&mut self) -> Option<Record> {
        let record = self.record.get_mut();
        record.unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for Track {
    /// A history can be long: it is taken apart in a loop, not by recursion.
    fn drop(&mut self) {
        let mut rest: Vec<Record> = self.take().into_iter().collect();
        while let Some(mut record) = rest.pop() {
            let tracks = mem::take(&mut record.inputs).into_iter().flatten();
            let mut tracks = tracks.filter_map(Arc::into_inner);
            rest.extend(tracks.by_ref().filter_map(|mut track| track.take()));
        }
    }
}

/// How a tensor was computed.
pub struct Recorded {
    /// The operation.
    pub op: Op,
    /// Its operands, each tracked if a gradient is wanted of it.
    pub inputs: Vec<Tensor>,
    /// Its results, without what else is wanted of them.
    pub results: Vec<Tensor>,
    /// Which of the results the tensor is.
    pub result: usize,
}

thread_local! {
    static IS_ENABLED: Cell<bool> = const { Cell::new(true) };
}

/// Does this thread record what gradients are wanted of? See [`no_grad`].
pub fn is_grad_enabled() -> bool {
    IS_ENABLED.get()
}

/// Calls `f`, in which this thread records nothing for gradients: results want none.
pub fn no_grad<R>(f: impl FnOnce() -> R) -> R {
    /// Ends it even if `f` panics.
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            IS_ENABLED.set(self.0);
        }
    }
    let _restore = Restore(IS_ENABLED.replace(false));
    f()
}

/// Can there be a gradient of elements of this type?
fn has_gradient(dtype: DType) -> bool {
    dtype.is_float() || dtype.is_complex()
}

/// The tracks of operands, if a gradient is wanted of one of them, and so of a result of `dtype`.
pub(crate) fn tracks(inputs: &[&Tensor], dtype: DType) -> Option<Tracks> {
    let is_tracked = inputs.iter().any(|input| input.track().is_some());
    let is_wanted = is_tracked && has_gradient(dtype) && is_grad_enabled();
    is_wanted.then(|| inputs.iter().map(|input| input.track().cloned()).collect())
}

#[track_calls]
impl Tensor {
    /// Is a gradient wanted? As in PyTorch, results want one if an operand does. Such a handle
    /// keeps how it was computed, see [`Tensor::recorded`].
    pub fn requires_grad(&self) -> bool {
        self.track().is_some()
    }

    /// Says whether a gradient is wanted of this handle, and of what is computed from it. It
    /// begins here: how the tensor itself was computed is forgotten where that changes.
    ///
    /// # Errors
    /// A dtype that is neither a float nor complex.
    pub fn requires_grad_(&mut self, requires_grad: bool) -> RusTorchResult<&mut Self> {
        let (dtype, expected) = (self.dtype(), "a floating-point or complex dtype");
        let legal = !requires_grad || has_gradient(dtype);
        require("requires_grad_", legal, expected, dtype)?;
        self.want_gradient(requires_grad);
        Ok(self)
    }

    /// [`Tensor::requires_grad_`] of a dtype that can have a gradient.
    pub(crate) fn want_gradient(&mut self, is_wanted: bool) {
        if is_wanted != self.requires_grad() {
            self.set_track(is_wanted.then(Track::leaf));
        }
    }

    /// The same value, of which no gradient is wanted.
    pub fn detach(&self) -> Self {
        let mut same = self.clone();
        same.set_track(None);
        same
    }

    /// Does no history for gradients lead here? True of tensors that want none, and of those that
    /// [`Tensor::requires_grad_`] made want one.
    pub fn is_leaf(&self) -> bool {
        self.track().is_none_or(|track| track.is_leaf)
    }

    /// The operation that a tracked tensor was computed by; `None` of leaves, and of what was
    /// [forgotten](Tensor::forget).
    pub fn recorded(&self) -> Option<Recorded> {
        let record = self.track()?.record.lock();
        let record = record.unwrap_or_else(PoisonError::into_inner);
        let Record {
            pending,
            inputs,
            results,
        } = record.as_ref()?;
        let operands = pending.inputs.iter().zip(inputs);
        let results = match &results[..] {
            [] => vec![self.detach()],
            all => all
                .iter()
                .map(|value| Self::of(value.clone(), None))
                .collect(),
        };
        Some(Recorded {
            op: pending.op.clone(),
            inputs: operands
                .map(|(value, track)| Self::of(value.clone(), track.clone()))
                .collect(),
            results,
            result: self.value().result(),
        })
    }

    /// Forgets how the tensor was computed, for all its handles, as PyTorch's `backward` does
    /// when it has used that.
    pub fn forget(&self) {
        if let Some(track) = self.track() {
            let record = track.record.lock();
            let forgotten = record.unwrap_or_else(PoisonError::into_inner).take();
            drop(forgotten);
        }
    }
}
