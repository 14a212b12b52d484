//! The tensor: a handle on a value that is computed on demand.

use std::sync::{Arc, OnceLock};

use rustorch_ir::ops::{Cast, Contiguous, Reshape};
use rustorch_ir::{
    DType, Op, OpError, OpKind, OpType, ResultTypes, Role, Scalar, Signature, TensorType,
    normalize_dim,
};
use rustorch_macros::track_calls;
use rustorch_runtime::{DeviceType, RunError, Storage};

use smallvec::smallvec;

use crate::args::dims::{Integer, IntoShape};
use crate::args::numbers::as_element;
use crate::autograd::{Base, Track, Tracks, Writes, is_grad_enabled, tracks};
use crate::call;
use crate::device::devices::{current, runtime};
use crate::device::manager::{IntoDevice, current_pin, pin, require_device};
use crate::error::{RusTorchResult, require};
use crate::lazy::eval::eval_all;
use crate::lazy::recording;
use crate::lazy::recovery::recover_lost;
use crate::lazy::value::{Pending, State, Value, View, overwrites, written_since};
use crate::precision::{is_single, lower, with_lower};

/// A multi-dimensional array of one element type.
///
/// Operations are recorded, and computed when values are read ([`Tensor::eval`],
/// [`Tensor::to_vec`], printing). So the runtime sees them together and chooses devices for them.
/// Shapes and dtypes are checked when an operation is recorded.
///
/// Clones are handles on the same value ([`Tensor::copy`] makes a new one, as PyTorch's `clone` does). Views share the
/// memory of their base. A write in place through one of these shows in all others, whatever was computed before.
///
/// Evaluation keeps the value of every tensor in the computation with a live handle. So nothing is
/// computed twice, and no random number is drawn twice. An unread history is computed when it is
/// 1000 operations long, or keeps 256 MiB of otherwise unused memory. Its errors then come from the
/// operation that made it so long.
pub struct Tensor {
    value: Value,
    /// Record of the computation, for tensors that require a gradient.
    track: Option<Arc<Track>>,
    /// State shared with its origin, if it is a clone or a view, or with its own clones and views.
    base: OnceLock<Arc<Base>>,
    limit: WriteLimit,
}

/// A limit on writes through a view, by PyTorch's rules for views.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum WriteLimit {
    #[default]
    None,
    /// One of several views that a call returned. Gradients cannot go through a write over it.
    OneOfSeveral,
    /// Made in `no_grad`, of a tensor that requires a gradient. A write outside would lose that.
    NoGrad,
}

impl Clone for Tensor {
    fn clone(&self) -> Self {
        Self {
            value: self.value.clone(),
            track: self.track.clone(),
            base: self.shared().clone().into(),
            limit: self.limit,
        }
    }
}

#[track_calls]
impl Tensor {
    pub(crate) fn of(value: Value, track: Option<Arc<Track>>) -> Self {
        Self {
            value,
            track,
            base: OnceLock::new(),
            limit: WriteLimit::None,
        }
    }

    /// A tensor whose elements are in memory.
    fn ready(dtype: DType, pin: Option<DeviceType>, view: View) -> Self {
        Self::of(Value::ready(dtype, pin, view), None)
    }

    /// A new tensor, brought to the current device if there is one.
    pub(crate) fn created(dtype: DType, view: View) -> RusTorchResult<Self> {
        let tensor = Self::ready(dtype, None, view);
        match current_pin() {
            Some(device) => tensor.moved(device),
            None => Ok(tensor),
        }
    }

    /// A value that is known only when a [`Trace`](crate::Trace) runs.
    ///
    /// # Errors
    /// Fails if the shape's bytes overflow, or if its rows are not whole blocks of `dtype`.
    pub fn placeholder(shape: impl IntoShape, dtype: DType) -> RusTorchResult<Self> {
        let ty = TensorType::new(&shape.into_shape()[..], dtype);
        check_type("placeholder", &ty)?;
        let value = Value::new(ty, current_pin(), State::Placeholder);
        Ok(Self::of(value, None))
    }

    /// A number that is data, not part of the graphs it is an operand in.
    pub(crate) fn number(
        name: &'static str,
        value: Scalar,
        dtype: DType,
        pin: Option<DeviceType>,
    ) -> RusTorchResult<Self> {
        let ty = TensorType::new([], dtype);
        let expected = "a tensor of scalars (cast block formats first)";
        require(name, !dtype.is_block(), expected, &ty)?;
        let value = as_element(value, dtype);
        if let Some(placeholder) = recording::number(value, &ty, pin) {
            return Ok(Self::of(placeholder, None));
        }
        Ok(Self::of(Value::new(ty, pin, State::Scalar(value)), None))
    }

    /// Records `op` on `inputs`; `name` is the name in errors.
    pub(crate) fn apply(
        name: &'static str,
        op: impl Into<Op>,
        inputs: &[&Self],
    ) -> RusTorchResult<Self> {
        Self::apply_op(name, op.into(), inputs)
    }

    /// [`Tensor::apply`], compiled once for all types of operations. A view of a tensor in memory becomes
    /// another one at once. A history that becomes too long is computed.
    fn apply_op(name: &'static str, op: Op, inputs: &[&Self]) -> RusTorchResult<Self> {
        if let Some(singles) = singles(name, &op, inputs)? {
            let singles: Vec<&Self> = singles.iter().collect();
            return with_lower(None, || Self::apply_op(name, op, &singles));
        }
        let ty = infer(name, &op, inputs)?.swap_remove(0);
        settle(inputs)?;
        require_followed(name, inputs)?;
        let tracks = tracks(inputs, ty.dtype);
        let (role, is_update) = (op.def().role(), overwrites(&op));
        if is_update {
            let kept =
                "a tensor that requires no gradient, since the old value is lost (detach it)";
            let has_gradient = tracks.is_none() || op.kind() == OpKind::Assign;
            require(name, has_gradient, kept, "one that does")?;
            inputs[0].value.announce_update(call::current(name));
        }
        let seen = match (role, inputs) {
            (Role::View, [input, ..]) => input.value.view().and_then(|view| view.seen(&op)),
            _ => None,
        };
        let pin = pin_of(inputs);
        let mut is_look = seen.is_some();
        let result = match (seen, tracks) {
            (Some(view), None) => Self::ready(ty.dtype, inputs[0].pin(), view),
            (Some(view), Some(tracks)) => {
                let value = Value::ready(ty.dtype, inputs[0].pin(), view);
                let pending = recorded(name, op, inputs, pin);
                let track = Track::result(pending, tracks, &value, &[]);
                Self::of(value, Some(track))
            }
            (None, tracks) => {
                let has_place = role == Role::View || is_update;
                let mut pending = recorded(name, op, inputs, pin);
                if has_place {
                    Pending::find_place(&mut pending);
                    is_look = pending.is_look();
                }
                Self::pending(ty, pending, tracks)?
            }
        };
        match (is_look, inputs) {
            (true, [input, ..]) => Ok(result.viewing(input)),
            // Views that strides cannot show are copies.
            _ => Ok(result),
        }
    }

    /// This handle as a view of another tensor, so that a write through one is known by the other.
    pub(crate) fn viewing(mut self, viewed: &Self) -> Self {
        let base = viewed.shared();
        self.base = match is_grad_enabled() {
            true => base.clone(),
            false => base.unrecorded(&self.value),
        }
        .into();
        self.limit = match !is_grad_enabled() && viewed.is_tracked() {
            true => WriteLimit::NoGrad,
            false => viewed.limit,
        };
        self
    }

    /// This view as one of several that a call returns.
    pub(crate) fn one_of_several(mut self) -> Self {
        if is_grad_enabled() && self.limit == WriteLimit::None {
            self.limit = WriteLimit::OneOfSeveral;
        }
        self
    }

    pub(crate) fn write_limit(&self) -> WriteLimit {
        self.limit
    }

    /// Fails for a part that was written over since it was made, where its gradient is wanted: PyTorch has none.
    fn require_followed(&self, name: &'static str) -> RusTorchResult<()> {
        if self.limit != WriteLimit::OneOfSeveral || !is_grad_enabled() {
            return Ok(());
        }
        let Some(now) = self.track() else {
            return Ok(());
        };
        let is_own = self.track.as_ref().is_some_and(|own| own.is(&now));
        let expected = "a view whose memory was not written over since (narrow, select and slice follow writes)";
        let got = || written_since(self.value.writer(), "make the parts again");
        match is_own {
            true => Ok(()),
            false => Err(OpError::new(name, expected, got()).into()),
        }
    }

    /// This result, a copy of what PyTorch shows by a view of `of`. A write over it is refused while `of`, or what
    /// shares its memory, has a handle: that would have to show the write.
    pub(crate) fn in_place_of_view(mut self, of: &Self) -> Self {
        let base = of.shared().copy(&self.value, self.track.clone());
        self.base = base.into();
        self
    }

    /// State shared with its clones and views.
    pub(crate) fn shared(&self) -> &Arc<Base> {
        let new = || Base::new(&self.value, self.track.clone());
        self.base.get_or_init(new)
    }

    /// Computes writes over its memory through other handles. Fails with the error that the tensor is, if it is one.
    #[inline]
    pub(crate) fn settle(&self) -> RusTorchResult<()> {
        self.value.require_known()?;
        match self.base.get() {
            Some(base) => base.settle(&self.value),
            None => Ok(()),
        }
    }

    /// The writes over its memory, if other handles may show that.
    pub(crate) fn writes(&self) -> Option<Arc<Writes>> {
        let base = self.base.get().filter(|_| !self.is_alone());
        base.map(|base| base.writes())
    }

    /// Returns whether it has no memory yet, and no clone or view that would have to show a write.
    pub(crate) fn is_alone(&self) -> bool {
        let pending = self.value.pending();
        let has_none = |pending: Arc<Pending>| pending.written.is_none() && !pending.is_look();
        pending.is_some_and(has_none) && self.base.get().is_none_or(Base::is_alone)
    }

    /// Returns whether it is the result of an operation without other handles.
    fn is_fresh(&self) -> bool {
        let pending = self.value.pending();
        let is_computed = |pending: Arc<Pending>| pending.op.def().role() == Role::Compute;
        let is_written = self.value.written().is_some();
        pending.is_some_and(is_computed) && !is_written && self.base.get().is_none()
    }

    /// Takes the elements of a tensor of its type, where it is alone. No memory is needed for that.
    pub(crate) fn become_other(&mut self, name: &'static str, other: Self) -> RusTorchResult<()> {
        // The gradient may need the result as it is before the next write.
        let other = match other.is_fresh() && !other.is_tracked() {
            true => other,
            false => Self::apply(name, Contiguous, &[&other])?,
        };
        self.become_value(name, other.value, other.track);
        self.base.take();
        Ok(())
    }

    /// Notes that its elements are written over: gradients of earlier operations cannot read them.
    pub(crate) fn announce_change(&self, name: &'static str) {
        self.value.announce_update(call::current(name));
    }

    /// The same value, with another track.
    /// These elements, whose gradient is that of `other`, a tensor of the same type. The elements of `other` are
    /// never computed.
    pub(crate) fn with_gradient_of(&self, other: &Self) -> Self {
        Self::of(self.value.clone(), other.track())
    }

    /// This view, whose gradient goes through `op` on another tensor.
    pub(crate) fn with_gradient_through(
        mut self,
        name: &'static str,
        op: impl Into<Op>,
        of: &Self,
    ) -> RusTorchResult<Self> {
        if let Some(tracks) = tracks(&[of], self.dtype()) {
            let pending = recorded(name, op.into(), &[of], self.pin());
            self.track = Some(Track::result(pending, tracks, &self.value, &[]));
        }
        Ok(self)
    }

    pub(crate) fn with_track(&self, track: Option<Arc<Track>>) -> Self {
        let base = self.shared().beside(&self.value, track.clone()).into();
        let value = self.value.clone();
        Self {
            base,
            ..Self::of(value, track)
        }
    }

    /// [`Tensor::apply`] of an operation of `N` results, which are computed together.
    pub(crate) fn apply_all<const N: usize>(
        name: &'static str,
        op: impl Into<Op>,
        inputs: &[&Self],
    ) -> RusTorchResult<[Self; N]> {
        let results = Self::apply_node(name, op.into(), inputs)?;
        let another = |results: Vec<_>| OpError::new(name, format!("{N} results"), results.len());
        Ok(<[Self; N]>::try_from(results).map_err(another)?)
    }

    /// [`Tensor::apply`] of an operation of any number of results.
    pub(crate) fn apply_node(
        name: &'static str,
        op: Op,
        inputs: &[&Self],
    ) -> RusTorchResult<Vec<Self>> {
        if let Some(singles) = singles(name, &op, inputs)? {
            let singles: Vec<&Self> = singles.iter().collect();
            return with_lower(None, || Self::apply_node(name, op, &singles));
        }
        let types = infer(name, &op, inputs)?;
        if types.len() == 1 {
            return Ok(vec![Self::apply_op(name, op, inputs)?]);
        }
        settle(inputs)?;
        require_followed(name, inputs)?;
        let pending = recorded(name, op, inputs, pin_of(inputs));
        let values = Value::results(types, &pending);
        let result = |value: &Value| {
            let tracks = tracks(inputs, value.ty().dtype);
            let track = tracks.map(|tracks| Track::result(pending.clone(), tracks, value, &values));
            Self::of(value.clone(), track)
        };
        let results: Vec<Self> = values.iter().map(result).collect();
        if is_due(&pending) {
            eval_all(&results.iter().collect::<Vec<_>>())?;
        }
        Ok(results)
    }

    /// A recorded operation on other operands, by the same call.
    pub(crate) fn again(recorded: &Pending, inputs: &[&Self]) -> RusTorchResult<Self> {
        let (op, call) = (&recorded.op, recorded.call);
        let ty = infer(call.method, op, inputs)?.swap_remove(0);
        let values = inputs.iter().map(|input| &input.value);
        let pending = Pending::new(op.clone(), call, values, recorded.pin);
        Self::pending(ty, pending, None)
    }

    #[inline]
    fn pending(
        ty: TensorType,
        pending: Arc<Pending>,
        tracks: Option<Tracks>,
    ) -> RusTorchResult<Self> {
        let (is_due, pin) = (is_due(&pending), pending.pin);
        let value = |pending| Value::new(ty, pin, State::Pending(pending));
        let tensor = match tracks {
            None => Self::of(value(pending), None),
            Some(tracks) => {
                let value = value(pending.clone());
                let track = Track::result(pending, tracks, &value, &[]);
                Self::of(value, Some(track))
            }
        };
        if is_due {
            tensor.eval()?;
        }
        Ok(tensor)
    }

    pub(crate) fn value(&self) -> &Value {
        &self.value
    }

    pub(crate) fn set_value(&mut self, value: Value) {
        self.value = value;
        self.base.take();
    }

    /// Is a gradient wanted of it?
    #[inline]
    pub(crate) fn is_tracked(&self) -> bool {
        match self.base.get().filter(|base| base.is_changed()) {
            Some(_) => self.track().is_some(),
            None => self.track.as_ref().is_some_and(|track| track.is_wanted()),
        }
    }

    /// Track of its computation, if it requires a gradient.
    pub(crate) fn track(&self) -> Option<Arc<Track>> {
        self.own_track().filter(|track| track.is_wanted())
    }

    /// Its track, also for a leaf that requires no gradient for now.
    pub(crate) fn own_track(&self) -> Option<Arc<Track>> {
        match self.base.get().filter(|base| base.is_changed()) {
            Some(base) => base.track(&self.value, self.track.as_ref()),
            None => self.track.clone(),
        }
    }

    pub(crate) fn set_track(&mut self, track: Option<Arc<Track>>) {
        let base = self.base.take();
        let base = base.map(|base| base.beside(&self.value, track.clone()));
        self.base = base.map_or_else(OnceLock::new, OnceLock::from);
        self.track = track;
    }

    pub(crate) fn base(&self) -> Option<&Arc<Base>> {
        self.base.get()
    }

    fn pin(&self) -> Option<DeviceType> {
        self.value.pin()
    }

    pub(crate) fn state(&self) -> State {
        self.value.state()
    }

    pub(crate) fn ty(&self) -> &TensorType {
        self.value.ty()
    }

    /// Sizes of the dimensions, slowest first.
    pub fn shape(&self) -> &[usize] {
        &self.ty().shape
    }

    /// Size of one dimension; negative ones count from the last.
    ///
    /// # Errors
    /// Fails if the dimension does not exist.
    pub fn size(&self, dim: impl Integer) -> RusTorchResult<usize> {
        Ok(self.shape()[self.dim("size", dim)?])
    }

    /// Type of the elements.
    pub fn dtype(&self) -> DType {
        self.ty().dtype
    }

    /// Number of dimensions.
    #[doc(alias = "ndimension")]
    pub fn rank(&self) -> usize {
        self.ty().rank()
    }

    /// Number of dimensions, by PyTorch's name.
    pub fn ndim(&self) -> usize {
        self.rank()
    }

    /// Number of elements.
    #[doc(alias = "nelement")]
    pub fn numel(&self) -> usize {
        self.ty().shape.elements()
    }

    /// Returns whether the elements are contiguous in row-major order. It does not matter whether they are computed
    /// yet.
    pub fn is_contiguous(&self) -> bool {
        self.value.layout().is_contiguous()
    }

    /// Returns whether the value is computed.
    pub fn is_ready(&self) -> bool {
        matches!(*self.value.lock(), State::Ready(_))
    }

    /// Does its value depend on inputs that are known only when a trace runs?
    pub(crate) fn is_traced(&self) -> bool {
        match self.state() {
            State::Placeholder | State::Failed(_) => true,
            State::Pending(pending) => pending.extent.is_traced,
            State::Ready(_) | State::Scalar(_) => false,
        }
    }

    /// The family of the operation that it is still to be computed by.
    pub(crate) fn op_type(&self) -> Option<OpType> {
        let State::Pending(pending) = self.state() else {
            return None;
        };
        let inputs: Vec<&TensorType> = pending.inputs.iter().map(Value::ty).collect();
        OpType::of(&Signature {
            op: &pending.op,
            inputs: &inputs,
            outputs: std::slice::from_ref(self.ty()),
        })
    }

    /// The memory of computed elements, or of elements whose only copy a device lost.
    pub fn storage_in_memory(&self) -> Option<Storage> {
        Some(self.value.view()?.storage.clone())
    }

    /// A number that clones of a tensor share, and no other live tensor has: Python's `id`. A view
    /// has its own.
    pub fn id(&self) -> usize {
        self.value.key()
    }

    /// The device in whose memory the elements are; `None` while they are not computed. If several
    /// devices have copies, it is the one that the tensor was moved to.
    pub fn device(&self) -> Option<DeviceType> {
        let storage = self.storage_in_memory()?;
        let runtime = runtime();
        let wanted = (self.pin()).filter(|device| runtime.has_copy(&storage, *device));
        Some(wanted.unwrap_or_else(|| runtime.device_of(&storage)))
    }

    /// The same elements on another device; operations on them run there too. [`DeviceType::Auto`]
    /// returns the choice to the runtime.
    ///
    /// Elements in memory are copied there now, others are computed there. Operations that the
    /// device cannot do fall back to the next device, unless the runtime's routing is strict. A
    /// device is named by its [`DeviceType`], or by a text as in PyTorch (`"cuda"`, `"opencl:1"`).
    ///
    /// # Errors
    /// Fails if the runtime has no such device, or if the only copy was on a lost device. In strict mode it also fails
    /// if the device fails.
    pub fn to_device(&self, device: impl IntoDevice) -> RusTorchResult<Self> {
        self.moved(device.into_device("to_device")?)
    }

    fn moved(&self, device: DeviceType) -> RusTorchResult<Self> {
        const NAME: &str = "to_device";
        require_device(device)?;
        self.settle()?;
        let pin = pin(device);
        let op = || self.same();
        let tracks = tracks(&[self], self.dtype());
        let Some(mut view) = self.value.view() else {
            // It is to be computed there anyway.
            if self.pin() == pin {
                return Ok(self.clone());
            }
            return Self::pending(
                self.ty().clone(),
                recorded(NAME, op(), &[self], pin),
                tracks,
            );
        };
        if let Some(device) = pin {
            let (runtime, routing) = current();
            let mut placed = runtime.place(&view.storage, device);
            while matches!(placed, Err(RunError::DataLost { .. })) {
                recover_lost([&self.value].into_iter(), &runtime, routing)?;
                view = self.value.view().unwrap_or(view);
                placed = runtime.place(&view.storage, device);
            }
            match placed {
                Err(e) if routing.strict => return Err(e.into()),
                // What needs it there will say why it went elsewhere.
                Ok(()) | Err(_) => {}
            }
        }
        let value = Value::ready(self.dtype(), pin, view);
        let pending = || recorded(NAME, op(), &[self], pin);
        let track = tracks.map(|tracks| Track::result(pending(), tracks, &value, &[]));
        let base = self.shared().beside(&value, track.clone()).into();
        Ok(Self {
            base,
            ..Self::of(value, track)
        })
    }

    /// The operation that gives this tensor as it is.
    fn same(&self) -> Op {
        let shape = self.ty().shape.clone();
        Reshape { shape }.into()
    }

    /// Takes a value that holds this tensor's elements in its memory now. The other handles on that memory
    /// follow. If nothing is recorded for gradients, the tensor's history stays as it was. A value that is
    /// recorded to be run many times, or known only then, belongs to this handle alone.
    pub(crate) fn become_updated(&mut self, name: &'static str, updated: Self) {
        let memory = self.value.memory();
        let is_to_be_run = updated.is_traced() || recording::is_recording();
        self.become_value(name, updated.value, updated.track);
        if is_to_be_run {
            self.base.take();
        }
        if let Some((base, memory)) = self.base.get().zip(memory) {
            base.write(&memory, &self.value, self.track.as_ref());
        }
    }

    /// Takes another value with its track.
    fn become_value(&mut self, name: &'static str, value: Value, track: Option<Arc<Track>>) {
        let old = self.own_track();
        let is_leaf = old.as_ref().is_some_and(|track| track.is_leaf());
        let track = match is_grad_enabled() && (track.is_some() || !is_leaf) {
            true => track,
            false => self.still(name, old.clone(), &value),
        };
        if let Some(track) = &track {
            track.retain_as(old.as_ref());
        }
        self.track = track;
        self.value = value;
    }

    /// The track of `value`, whose elements were written over since the one that it had: recorded now, as the
    /// elements are those of now.
    pub(crate) fn still(
        &self,
        name: &'static str,
        track: Option<Arc<Track>>,
        value: &Value,
    ) -> Option<Arc<Track>> {
        let track = track?;
        if track.is_leaf() {
            return Some(track);
        }
        let shape = value.ty().shape.clone();
        let pending = recorded(name, Reshape { shape }.into(), &[self], self.pin());
        Some(Track::result(pending, smallvec![Some(track)], value, &[]))
    }

    /// [`Tensor::dim`] of what counts a tensor of rank 0 as one of one dimension.
    pub(crate) fn wrap_dim(&self, op: &'static str, dim: impl Integer) -> RusTorchResult<usize> {
        Ok(normalize_dim(op, dim.to_isize(), self.rank().max(1))?)
    }

    /// The index of a dimension that may be counted from the last.
    pub(crate) fn dim(&self, op: &'static str, dim: impl Integer) -> RusTorchResult<usize> {
        Ok(normalize_dim(op, dim.to_isize(), self.rank())?)
    }
}

/// The operands of an operation in single precision, if it is computed so where they are halves.
fn singles(name: &str, op: &Op, inputs: &[&Tensor]) -> RusTorchResult<Option<Vec<Tensor>>> {
    let is_half = |x: &&Tensor| matches!(x.dtype(), DType::F16 | DType::BF16);
    let is_asked = lower().is_some() && inputs.iter().any(is_half);
    // A cross entropy computes in single precision, and gives that, whatever it reads: logits are not written again.
    let is_there = matches!(
        op,
        Op::Cast(_) | Op::CrossEntropy(_) | Op::CrossEntropyMean(_)
    );
    if !is_asked || is_there || !is_single(name) {
        return Ok(None);
    }
    let single = |x: &&Tensor| match is_half(x) {
        true => Tensor::apply("autocast", Cast { dtype: DType::F32 }, &[x]),
        false => Ok((*x).clone()),
    };
    inputs
        .iter()
        .map(single)
        .collect::<RusTorchResult<_>>()
        .map(Some)
}

/// [`Tensor::settle`] of each.
#[inline]
pub(crate) fn settle(inputs: &[&Tensor]) -> RusTorchResult<()> {
    inputs.iter().try_for_each(|input| input.settle())
}

/// [`Tensor::require_followed`] of each.
#[inline]
fn require_followed(name: &'static str, inputs: &[&Tensor]) -> RusTorchResult<()> {
    inputs
        .iter()
        .try_for_each(|input| input.require_followed(name))
}

/// Is an operation computed when it is recorded? One behind a long history is. So is a call in which other ranks take
/// part: the calls of all ranks are then in the order of the program.
fn is_due(pending: &Pending) -> bool {
    let is_alone = !pending.extent.is_traced && !recording::is_recording();
    pending.extent.is_too_long() || is_alone && pending.op.is_collective()
}

/// An operation on tensors; `name` is the name in errors if the user called no method.
#[inline]
fn recorded(
    name: &'static str,
    op: Op,
    inputs: &[&Tensor],
    pin: Option<DeviceType>,
) -> Arc<Pending> {
    let inputs = inputs.iter().map(|input| &input.value);
    let takes_lists = matches!(op, Op::Concat(_));
    let mut pending = Pending::new(op, call::current(name), inputs, pin);
    if takes_lists {
        Pending::part_operands(&mut pending);
    }
    pending
}

/// The device of an operation: it follows the operand that was moved.
#[inline]
fn pin_of(inputs: &[&Tensor]) -> Option<DeviceType> {
    inputs.iter().find_map(|t| t.pin()).or_else(current_pin)
}

/// Types of an operation's results; `name` is the name in errors.
#[inline]
fn infer(name: &'static str, op: &Op, inputs: &[&Tensor]) -> RusTorchResult<ResultTypes> {
    let results = match inputs {
        [a] => op.infer(&[a.ty()]),
        [a, b] => op.infer(&[a.ty(), b.ty()]),
        _ => op.infer(&inputs.iter().map(|t| t.ty()).collect::<Vec<_>>()),
    };
    let results = results.map_err(|e| OpError { op: name, ..e })?;
    results.iter().try_for_each(|ty| check_type(name, ty))?;
    Ok(results)
}

/// Fails if a tensor of this type cannot exist. Sizes of 0 do not excuse the others: strides
/// are products of them.
pub(crate) fn check_type(op: &'static str, ty: &TensorType) -> RusTorchResult<()> {
    let elements = (ty.shape.iter()).try_fold(1usize, |n, &d| n.checked_mul(d.max(1)));
    let bytes = elements.and_then(|n| n.checked_mul(ty.dtype.size().unwrap_or(1)));
    let is_whole = !ty.dtype.is_block() || ty.dtype.bytes_of(&ty.shape).is_some();
    require(
        op,
        bytes.is_some_and(|n| n <= isize::MAX as usize) && is_whole,
        "a tensor of whole blocks that fits the address space",
        ty,
    )
}
