//! The tensor: a handle on a value that is computed when it is asked for.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustorch_ir::ops::Reshape;
use rustorch_ir::{DType, Layout, Op, OpError, Role, Shape, TensorType, normalize_dim};
use rustorch_runtime::{DeviceType, RunError, Storage};
use smallvec::SmallVec;

use crate::devices::{current, runtime};
use crate::error::RusTorchResult;
use crate::manager::{current_pin, pin};

/// A multi-dimensional array of one element type.
///
/// Operations are recorded and computed when values are asked for ([`Tensor::eval`],
/// [`Tensor::to_vec`], printing), so that the runtime sees them together and chooses
/// devices for them. Shapes and dtypes are checked when an operation is recorded.
///
/// Clones are handles on the same value. Views of computed tensors share their memory.
#[derive(Clone)]
pub struct Tensor(Arc<Node>);

struct Node {
    ty: TensorType,
    /// The device that this and what is computed from it are wanted on.
    pin: Option<DeviceType>,
    state: Mutex<State>,
}

/// What is known of a tensor's value.
#[derive(Clone)]
pub(crate) enum State {
    /// How it is computed.
    Pending(Arc<Pending>),
    /// Where it is.
    Ready(View),
    /// It is given when a [`Trace`](crate::Trace) is run.
    Placeholder,
}

/// An operation that was not computed yet.
pub(crate) struct Pending {
    pub(crate) op: Op,
    pub(crate) inputs: SmallVec<[Tensor; 4]>,
    /// The device that the user wants it on.
    pub(crate) pin: Option<DeviceType>,
}

impl Pending {
    /// Is it written over its first operand?
    pub(crate) fn is_update(&self) -> bool {
        self.op.def().overwrites(0) == Some(0)
    }
}

/// Elements in a storage.
#[derive(Clone)]
pub(crate) struct View {
    pub(crate) storage: Storage,
    pub(crate) layout: Layout,
}

impl View {
    /// A whole storage, in row-major order.
    pub(crate) fn whole(storage: Storage, shape: &Shape) -> Self {
        let layout = Layout::contiguous(shape);
        Self { storage, layout }
    }

    /// Does the view show all of its storage in row-major order, as `dtype`?
    pub(crate) fn is_whole(&self, dtype: DType) -> bool {
        self.layout.offset == 0
            && self.layout.is_contiguous()
            && dtype.bytes_of(&self.layout.shape) == Some(self.storage.bytes())
    }
}

impl Node {
    /// Takes the inputs, so that dropping a node never drops another inside it.
    fn take_inputs(&mut self) -> SmallVec<[Tensor; 4]> {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        match mem::replace(state, State::Placeholder) {
            State::Pending(pending) => Arc::into_inner(pending)
                .map(|p| p.inputs)
                .unwrap_or_default(),
            State::Ready(_) | State::Placeholder => SmallVec::new(),
        }
    }
}

impl Drop for Node {
    /// A history can be long: it is taken apart in a loop, not by recursion.
    fn drop(&mut self) {
        let mut rest = self.take_inputs();
        while let Some(tensor) = rest.pop() {
            if let Some(mut node) = Arc::into_inner(tensor.0) {
                rest.extend(node.take_inputs());
            }
        }
    }
}

impl Tensor {
    fn new(ty: TensorType, pin: Option<DeviceType>, state: State) -> Self {
        let state = Mutex::new(state);
        Self(Arc::new(Node { ty, pin, state }))
    }

    /// A tensor whose elements are in memory.
    fn ready(dtype: DType, pin: Option<DeviceType>, view: View) -> Self {
        let shape = view.layout.shape.clone();
        Self::new(TensorType { shape, dtype }, pin, State::Ready(view))
    }

    /// A new tensor, brought to the current device if there is one.
    pub(crate) fn created(dtype: DType, view: View) -> RusTorchResult<Self> {
        let tensor = Self::ready(dtype, None, view);
        match current_pin() {
            Some(device) => tensor.to_device(device),
            None => Ok(tensor),
        }
    }

    /// A value that is known only when a [`Trace`](crate::Trace) is run.
    ///
    /// # Errors
    /// The shape's bytes overflow, or its rows are not whole blocks of `dtype`.
    pub fn placeholder(shape: impl AsRef<[usize]>, dtype: DType) -> RusTorchResult<Self> {
        let ty = TensorType::new(shape.as_ref(), dtype);
        check_type("placeholder", &ty)?;
        Ok(Self::new(ty, current_pin(), State::Placeholder))
    }

    /// Records `op` on `inputs`; `name` is what errors call it. A view of a tensor in memory
    /// becomes another one at once.
    pub(crate) fn apply(
        name: &'static str,
        op: impl Into<Op>,
        inputs: &[&Self],
    ) -> RusTorchResult<Self> {
        let op = op.into();
        let types: SmallVec<[&TensorType; 4]> = inputs.iter().map(|t| t.ty()).collect();
        let results = (op.def().infer(&types)).map_err(|e| OpError { op: name, ..e })?;
        let ty = results[0].clone();
        check_type(name, &ty)?;
        if op.def().role() == Role::View
            && let State::Ready(view) = inputs[0].state()
            && let Some(layout) = op.def().view(&view.layout)
        {
            let storage = view.storage;
            return Ok(Self::ready(
                ty.dtype,
                inputs[0].pin(),
                View { storage, layout },
            ));
        }
        // Work goes where what it works on was moved to.
        let pin = inputs.iter().find_map(|t| t.pin()).or_else(current_pin);
        let inputs = inputs.iter().copied().cloned().collect();
        Ok(Self::pending(ty, Pending { op, inputs, pin }))
    }

    fn pending(ty: TensorType, pending: Pending) -> Self {
        Self::new(ty, pending.pin, State::Pending(Arc::new(pending)))
    }

    fn pin(&self) -> Option<DeviceType> {
        self.0.pin
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn state(&self) -> State {
        self.lock().clone()
    }

    /// Replaces the history by the value.
    pub(crate) fn store(&self, view: View) {
        let mut state = self.lock();
        if matches!(*state, State::Pending(_)) {
            let history = mem::replace(&mut *state, State::Ready(view));
            // The history may be long, and the lock is not needed for dropping it.
            drop(state);
            drop(history);
        }
    }

    /// Tells this tensor from others.
    pub(crate) fn key(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    pub(crate) fn ty(&self) -> &TensorType {
        &self.0.ty
    }

    /// Sizes of the dimensions, slowest first.
    pub fn shape(&self) -> &[usize] {
        &self.ty().shape
    }

    /// Size of one dimension; negative ones count from the last.
    ///
    /// # Errors
    /// There is no such dimension.
    pub fn size(&self, dim: isize) -> RusTorchResult<usize> {
        Ok(self.shape()[self.dim("size", dim)?])
    }

    /// Type of the elements.
    pub fn dtype(&self) -> DType {
        self.ty().dtype
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.ty().rank()
    }

    /// Number of dimensions, by PyTorch's name.
    pub fn ndim(&self) -> usize {
        self.rank()
    }

    /// Number of elements.
    pub fn numel(&self) -> usize {
        self.ty().shape.elements()
    }

    /// Are the elements one row-major run without gaps? What is not computed yet will be.
    pub fn is_contiguous(&self) -> bool {
        match self.state() {
            State::Ready(view) => view.layout.is_contiguous(),
            State::Pending(_) | State::Placeholder => true,
        }
    }

    /// Was the value computed, or given?
    pub fn is_ready(&self) -> bool {
        matches!(*self.lock(), State::Ready(_))
    }

    /// The memory that the elements are in, if they are computed.
    pub(crate) fn storage_in_memory(&self) -> Option<Storage> {
        match self.state() {
            State::Ready(view) => Some(view.storage),
            State::Pending(_) | State::Placeholder => None,
        }
    }

    /// The device in whose memory the elements are, which is the one that computed them;
    /// `None` while they are not computed. With copies on several, the one that the tensor
    /// was moved to.
    pub fn device(&self) -> Option<DeviceType> {
        let storage = self.storage_in_memory()?;
        let runtime = runtime();
        let wanted = (self.pin()).filter(|device| runtime.has_copy(&storage, *device));
        Some(wanted.unwrap_or_else(|| runtime.device_of(&storage)))
    }

    /// The same elements on another device; what is computed from them is computed there
    /// too. [`DeviceType::Auto`] leaves the choice to the runtime again.
    ///
    /// Elements in memory are brought there now, others are computed there. What the device
    /// cannot do, or fails at, goes down the chain, unless the runtime's routing is strict.
    ///
    /// # Errors
    /// The only copy was on a device that is lost; in strict mode, the device is not there or
    /// fails.
    pub fn to_device(&self, device: DeviceType) -> RusTorchResult<Self> {
        let pin = pin(device);
        match (self.state(), pin) {
            (State::Ready(view), None) => Ok(Self::ready(self.dtype(), pin, view)),
            (State::Ready(view), Some(device)) => {
                let (runtime, routing) = current();
                match runtime.place(&view.storage, device) {
                    Err(e) if routing.strict || matches!(e, RunError::DataLost { .. }) => {
                        return Err(e.into());
                    }
                    // What needs it there will say why it went elsewhere.
                    Ok(()) | Err(_) => {}
                }
                Ok(Self::ready(self.dtype(), pin, view))
            }
            (State::Pending(_) | State::Placeholder, _) => {
                let ty = self.ty().clone();
                let shape = ty.shape.clone();
                let (op, inputs) = (
                    Reshape { shape }.into(),
                    [self.clone()].into_iter().collect(),
                );
                Ok(Self::pending(ty, Pending { op, inputs, pin }))
            }
        }
    }

    /// The index of a dimension that may be counted from the last.
    pub(crate) fn dim(&self, op: &'static str, dim: isize) -> RusTorchResult<usize> {
        Ok(normalize_dim(op, dim, self.rank())?)
    }
}

/// Fails if a tensor of this type cannot exist. Sizes of 0 do not excuse the others: strides
/// are products of them.
pub(crate) fn check_type(op: &'static str, ty: &TensorType) -> RusTorchResult<()> {
    let elements = (ty.shape.iter()).try_fold(1usize, |n, &d| n.checked_mul(d.max(1)));
    let bytes = elements.and_then(|n| n.checked_mul(ty.dtype.size().unwrap_or(1)));
    crate::error::require(
        op,
        bytes.is_some_and(|n| n <= isize::MAX as usize) && ty.dtype.bytes_of(&ty.shape).is_some(),
        "a tensor of whole blocks that fits the address space",
        ty,
    )
}
