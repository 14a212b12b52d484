//! Gradients of tensors that are written over through views.
//!
//! Such a write changes the tensor that the view shows, and with it how that tensor and its other views were
//! computed: what PyTorch's `CopySlices` does. Handles know of it by a [`Base`], which the tensor's handle makes
//! when the first view is made of it. Only handles hold one, never a history, so that no history holds itself.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustorch_ir::{DType, Layout, Shape};
use rustorch_runtime::{Moment, Storage};

use super::enable_grad;
use super::track::Track;
use crate::Tensor;
use crate::value::{Value, View, WeakValue};

/// What a tensor's handle, its later clones, and the views that were made of them share.
pub(crate) struct Base {
    /// The tensor, as long as somebody else has a handle on it.
    root: WeakValue,
    /// Was it written over through a view?
    is_changed: AtomicBool,
    state: Mutex<State>,
}

struct State {
    /// The tensor's shape.
    shape: Shape,
    /// How it is computed.
    track: Option<Arc<Track>>,
    /// When its elements were those of that.
    moment: Moment,
    /// Its memory, once it was written over.
    memory: Option<Storage>,
    /// How views of it are computed since then.
    views: Vec<(Layout, Arc<Track>)>,
}

/// All of some memory.
fn whole(memory: &Storage, shape: &Shape, dtype: DType) -> Value {
    Value::ready(dtype, None, View::whole(memory.clone(), shape))
}

impl Base {
    /// That of a value with its track, of which a view is made now.
    pub(crate) fn new(root: &Value, track: Option<Arc<Track>>) -> Arc<Self> {
        let state = State {
            shape: root.ty().shape.clone(),
            track,
            moment: Moment::next(),
            memory: None,
            views: Vec::new(),
        };
        Arc::new(Self {
            root: root.downgrade(),
            is_changed: AtomicBool::new(false),
            state: Mutex::new(state),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Was the tensor written over through a view, with gradients in play?
    pub(crate) fn is_changed(&self) -> bool {
        self.is_changed.load(Ordering::Relaxed)
    }

    /// The tensor, seen by a view of this dtype, if it is all of its memory, `memory`, and has the elements that it
    /// had when it was last known how they are computed.
    pub(crate) fn root(&self, memory: &Storage, dtype: DType) -> Option<Tensor> {
        let state = self.state();
        let is_it = match (&state.memory, self.root.upgrade()) {
            (Some(known), _) => known.same_as(memory),
            (None, Some(root)) => root.view().is_some_and(|view| {
                let is_whole = root.ty().dtype == dtype && view.is_whole(dtype);
                is_whole && view.storage.same_as(memory) && root.is_of(state.moment)
            }),
            // Views of it are all that is left.
            (None, None) => dtype.bytes_of(&state.shape) == Some(memory.bytes()),
        };
        let value = is_it.then(|| whole(memory, &state.shape, dtype))?;
        let is_known = value.is_of(state.moment);
        is_known.then(|| Tensor::of(value, state.track.clone()))
    }

    /// The tensor's elements, in this memory, are now computed like this.
    pub(crate) fn change(&self, memory: &Storage, track: Option<Arc<Track>>) {
        let old = {
            let mut state = self.state();
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

    /// How the elements of a handle on the tensor, or on a view of it, are computed, whose own track is `own`.
    pub(crate) fn track(&self, value: &Value, own: Option<&Arc<Track>>) -> Option<Arc<Track>> {
        let own = || own.cloned();
        value.show();
        let (root, layout) = {
            let state = self.state();
            let (Some(memory), Some(view)) = (&state.memory, value.view()) else {
                return own();
            };
            let is_newer = own().is_some_and(|track| track.id().0 > state.moment);
            // What strides could not show was a copy.
            if is_newer || !memory.same_as(&view.storage) {
                return own();
            }
            let layout = view.layout.clone();
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
