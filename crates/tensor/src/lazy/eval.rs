//! Computing tensors and reading their elements.

use std::mem;
use std::sync::Arc;

use half::{bf16, f16};
use rustorch_ir::ops::AsStrided;
use rustorch_ir::{DType, F8E4M3, F8E5M2, Layout, OpError, Scalar, TensorType};
use rustorch_macros::track_calls;
use rustorch_runtime::{Outline, Results, Routing, RunError, Runtime, Storage};
use smallvec::SmallVec;

use crate::autograd::is_grad_enabled;
use crate::call;
use crate::device::devices::current;
use crate::error::{RusTorchError, RusTorchResult, require};
use crate::lazy::capture::{Capture, Leaves};
use crate::lazy::eager::is_eager;
use crate::lazy::history::History;
use crate::lazy::recording::is_recording;
use crate::lazy::recovery::{Recipes, of_history, of_one, recover_from, recover_lost};
use crate::lazy::tree::Tree;
use crate::lazy::value::{Pending, State, Value, View};
use crate::tensor::settle;
use crate::warnings::warn;
use crate::{Element, Tensor};

/// Bytes that are read from a device at once.
const READ_BYTES: usize = 256 * 1024;

/// Computes several tensors together, so that shared parts are computed only once. Each then has
/// its value and drops its history. So does every other tensor in the computation with a live
/// handle, except constants. Tracked handles ([`Tensor::requires_grad`]) keep their history beside
/// the value.
///
/// # Errors
/// Fails for tensors that depend on a placeholder. Also fails if no device could compute a result.
/// Also fails for a mistake found only at run time, such as an index out of range.
/// [runs ahead](rustorch_runtime::Backend::runs_ahead), reading reports such a mistake.
#[track_calls]
pub fn eval_all(tensors: &[&Tensor]) -> RusTorchResult<()> {
    settle(tensors)?;
    let result = eval_settled(tensors);
    if result.as_ref().is_err_and(|error| !error.is_device_error()) {
        // Where gradients are in play, a write that is a mistake goes on to be one.
        let is_in_play = is_grad_enabled();
        for tensor in tensors {
            let base = tensor
                .base()
                .filter(|base| !(is_in_play && base.is_changed()));
            base.iter().for_each(|base| base.forget(tensor.value()));
        }
    }
    result
}

fn eval_settled(tensors: &[&Tensor]) -> RusTorchResult<()> {
    let (runtime, routing) = current();
    if let [tensor] = tensors
        && eval_tree(tensor.value(), &runtime, routing)?
    {
        return Ok(());
    }
    eval_with(tensors, &runtime, routing, |outline, leaves, runs_ahead| {
        runtime.run_outline(outline, leaves, routing, runs_ahead)
    })
}

/// The short way for a [`Tree`]; `false` if it is none.
fn eval_tree(value: &Value, runtime: &Runtime, routing: Routing) -> RusTorchResult<bool> {
    let pending = match value.state() {
        State::Ready(_) => return Ok(true),
        State::Pending(pending) if pending.is_look() => return show(value),
        State::Pending(pending) => pending,
        State::Scalar(_) | State::Placeholder | State::Failed(_) => return Ok(false),
    };
    let call = pending.call;
    let mut tree = Tree::default();
    let keeps_recipes = runtime.keeps_recipes();
    let most = if keeps_recipes { 1 } else { Tree::MOST };
    if !tree.grow(pending, most, runtime)? {
        return Ok(false);
    }
    let recipe = match tree.root().filter(|_| keeps_recipes) {
        Some(root) => of_one(value, root, runtime),
        None => None,
    };
    let runs_ahead = recipe.is_some() && !is_eager();
    let result = runtime.run_outline(&tree.outline(), &tree.storages, routing, runs_ahead);
    if matches!(result, Err(RunError::DataLost { .. })) {
        // The long way finds out what was lost, and computes it again.
        return Ok(false);
    }
    let call_of = |node: Option<usize>| {
        let recorded = node.and_then(|node| tree.recorded(node));
        recorded.or(Some(call))
    };
    for storage in result.map_err(|e| e.by_call(call_of))? {
        let view = View::whole(storage, &value.ty().shape);
        value.store(view.made_by(Some(call.method), recipe.clone()));
    }
    // What only it holds counts from now on.
    drop(tree);
    runtime.bound_recipes();
    Ok(true)
}

/// Makes a view show its base, if that is in memory, or a number; `false` otherwise.
fn show(value: &Value) -> RusTorchResult<bool> {
    if let Some(viewed) = value.viewed() {
        if let State::Scalar(number) = viewed.state() {
            viewed.store(number_alone(number, viewed.ty())?);
        }
        value.show();
    }
    Ok(value.view().is_some())
}

/// [`eval_all`] by whoever runs graphs, for `runtime`; again, if something that was lost with a
/// device has to be computed again first. The runner learns whether devices may run ahead of the caller, since
/// everything that they compute can be recomputed.
pub(crate) fn eval_with(
    tensors: &[&Tensor],
    runtime: &Runtime,
    routing: Routing,
    mut run: impl FnMut(&Outline, &[Storage], bool) -> Result<Results, RunError>,
) -> RusTorchResult<()> {
    let mut pending: SmallVec<[&Value; 4]> = SmallVec::new();
    for tensor in tensors.iter().filter(|tensor| !tensor.is_ready()) {
        if show(tensor.value())? {
            continue;
        }
        match tensor.state() {
            State::Scalar(number) => tensor.value().store(number_alone(number, tensor.ty())?),
            _ => pending.push(tensor.value()),
        }
    }
    while !pending.is_empty() {
        let (mut history, held) = History::computing(&pending);
        let leaves = Leaves::of(&history, runtime)?;
        let capture = Capture::once(&history, &leaves, &pending, held)?;
        let recipes = match runtime.keeps_recipes() {
            true => of_history(&history, runtime),
            false => Recipes::default(),
        };
        let call_of = |node: Option<usize>| {
            let recorded = node.and_then(|node| leaves.recorded(&history, node));
            recorded.or_else(call::entered)
        };
        let mut results = capture.results.iter();
        let runs_ahead = !is_eager() && results.all(|value| recipes.contains_key(&value.key()));
        match run(&capture.outline, &leaves.storages, runs_ahead) {
            Ok(storages) => {
                keep_results(capture, &leaves, storages, recipes);
                // What only they hold counts from now on.
                drop((leaves, history));
                runtime.bound_recipes();
                break;
            }
            Err(lost @ RunError::DataLost { .. }) => {
                let lost = lost.by_call(call_of);
                let values = history.leaves.iter().map(|(value, _)| value);
                recover_from(lost, values, &leaves.storages, runtime, routing)?;
            }
            Err(error) if history.readers.is_empty() => return Err(error.by_call(call_of).into()),
            // It may be a mistake of theirs.
            Err(_) => {
                drop(capture);
                eval_each(mem::take(&mut history.readers));
            }
        }
    }
    Ok(())
}

/// Computes values one by one. A value that cannot be computed gives its error when it is used.
fn eval_each(values: Vec<Value>) {
    for value in values {
        if let Err(error) = Tensor::of(value.clone(), None).eval() {
            value.fail(error);
        }
    }
}

/// Puts computed results in the place of histories.
fn keep_results(capture: Capture, leaves: &Leaves, storages: Results, mut recipes: Recipes) {
    for (input, recorded) in capture.written {
        let storage = &leaves.storages[input];
        storage.overwrite_at(recorded, storage.last_write());
    }
    for (value, storage) in capture.results.iter().zip(storages) {
        let op = value.pending().map(|pending| pending.call.method);
        let view = View::whole(storage, &value.ty().shape);
        value.store(view.made_by(op, recipes.remove(&value.key())));
    }
    for (value, pending) in capture.shown {
        let memory = pending.inputs[0].view();
        let view = match pending.is_update() {
            true => memory,
            false => memory.and_then(|view| view.seen(&pending.op).map(Arc::new)),
        };
        if let Some(view) = view {
            value.store(view);
        }
    }
}

/// The elements of a view that has no gaps.
fn elements<T: Element>(view: &View, count: usize, runtime: &Runtime) -> Result<Vec<T>, RunError> {
    let size = size_of::<T>();
    let mut elements = Vec::with_capacity(count);
    let mut buffer = vec![0; READ_BYTES.min(count * size)];
    while elements.len() < count {
        let bytes = ((count - elements.len()) * size).min(buffer.len());
        let offset = (view.layout.offset + elements.len()) * size;
        runtime.read(&view.storage, offset, &mut buffer[..bytes])?;
        elements.extend(buffer[..bytes].chunks_exact(size).map(T::from_bytes));
    }
    Ok(elements)
}

/// Fails unless `T` is the type of a tensor's elements. Says how to get there.
fn require_element<T: Element>(name: &'static str, ty: &TensorType) -> RusTorchResult<()> {
    let dtype = T::DTYPE;
    let expected = format_args!("a tensor of {dtype} (to_dtype(DType::{dtype:?}) makes it one)");
    require(name, ty.dtype == dtype, expected, ty)
}

/// A number in its own memory.
fn number_alone(number: Scalar, ty: &TensorType) -> RusTorchResult<View> {
    View::number(number, ty).ok_or(RusTorchError::OutOfMemory {
        op: "eval",
        bytes: number.to_bytes(ty.dtype).len(),
    })
}

#[track_calls]
impl Tensor {
    /// Computes the value, unless it is computed already, and returns the tensor. Its history is
    /// dropped.
    ///
    /// # Errors
    /// See [`eval_all`].
    pub fn eval(&self) -> RusTorchResult<&Self> {
        eval_all(&[self])?;
        Ok(self)
    }

    /// The elements' place after [`Tensor::eval`].
    pub(crate) fn view_of_value(&self) -> RusTorchResult<Arc<View>> {
        self.eval()?;
        let missing = || OpError::new("eval", "a value", "none");
        Ok(self.value().view().ok_or_else(missing)?)
    }

    /// The computed elements in row-major order as a storage: the tensor's own if it shows all of
    /// it, else a copy. Waits for errors that are found only at run time.
    ///
    /// # Errors
    /// See [`eval_all`].
    pub fn storage(&self) -> RusTorchResult<Storage> {
        let (runtime, routing) = current();
        self.eval()?;
        recover_lost([self.value()].into_iter(), &runtime, routing)?;
        self.whole_storage()
    }

    /// [`Tensor::storage`] whose bytes may be found lost.
    pub(crate) fn whole_storage(&self) -> RusTorchResult<Storage> {
        let view = self.view_of_value()?;
        match view.is_whole(self.dtype()) {
            true => Ok(view.storage.clone()),
            false => Ok(self.copied("storage")?.storage.clone()),
        }
    }

    /// The elements of a view in memory, in their own memory.
    fn copied(&self, name: &'static str) -> RusTorchResult<Arc<View>> {
        let (runtime, routing) = current();
        recover_lost([self.value()].into_iter(), &runtime, routing)?;
        let view = self.view_of_value()?;
        let (pin, count) = (
            self.value().pin(),
            view.storage.bytes() / self.dtype().size().unwrap_or(1),
        );
        let memory = view.seen_as(Layout::contiguous(&[count].into()));
        let memory = Value::ready(self.dtype(), pin, memory);
        let layout = view.layout.clone();
        let pending = Pending::new(
            AsStrided { layout }.into(),
            call::current(name),
            [&memory].into_iter(),
            pin,
        );
        // Nothing notes that it is a view, so it is a copy.
        let copy = Value::new(self.ty().clone(), pin, State::Pending(pending));
        Self::of(copy, None).view_of_value()
    }

    /// The elements in row-major order. `T` is the type of the tensor's dtype.
    ///
    /// # Errors
    /// Fails if the dtype is not `T`'s (see [`Tensor::to_dtype`]). Also the errors of [`eval_all`].
    #[doc(alias = "tolist")]
    #[doc(alias = "numpy")]
    pub fn to_vec<T: Element>(&self) -> RusTorchResult<Vec<T>> {
        self.read("to_vec")
    }

    fn read<T: Element>(&self, name: &'static str) -> RusTorchResult<Vec<T>> {
        require_element::<T>(name, self.ty())?;
        if is_recording() {
            warn(format_args!(
                "{}: read while a step is recorded; every run of the step uses these values",
                call::current(name)
            ));
        }
        let (runtime, routing) = current();
        loop {
            let mut view = self.view_of_value()?;
            if !view.layout.is_contiguous() {
                view = self.copied(name)?;
            }
            match elements(&view, self.numel(), &runtime) {
                Err(RunError::DataLost { .. }) => {
                    recover_lost([self.value()].into_iter(), &runtime, routing)?;
                }
                read => return Ok(read?),
            }
        }
    }

    /// The only element of a tensor of any rank, as `f64`: PyTorch's `item`. A boolean is 0 or 1.
    ///
    /// # Errors
    /// Fails if the tensor has not exactly one element. Also fails for a complex number, a block
    /// format, or an integer that `f64` cannot hold ([`Tensor::to_scalar`] reads these). Also the
    /// errors of [`eval_all`].
    pub fn item(&self) -> RusTorchResult<f64> {
        const NAME: &str = "item";
        Ok(match self.dtype() {
            DType::F64 => self.only(NAME)?,
            DType::F32 => self.only::<f32>(NAME)?.into(),
            DType::F16 => self.only::<f16>(NAME)?.into(),
            DType::BF16 => self.only::<bf16>(NAME)?.into(),
            DType::F8E4M3 => self.only::<F8E4M3>(NAME)?.to_f32().into(),
            DType::F8E5M2 => self.only::<F8E5M2>(NAME)?.to_f32().into(),
            DType::I64 => exact(NAME, self.only::<i64>(NAME)?)?,
            DType::U64 => exact(NAME, self.only::<u64>(NAME)?)?,
            DType::I32 => self.only::<i32>(NAME)?.into(),
            DType::I16 => self.only::<i16>(NAME)?.into(),
            DType::I8 => self.only::<i8>(NAME)?.into(),
            DType::U32 => self.only::<u32>(NAME)?.into(),
            DType::U16 => self.only::<u16>(NAME)?.into(),
            DType::U8 => self.only::<u8>(NAME)?.into(),
            DType::Bool => self.only::<bool>(NAME)?.into(),
            DType::Complex64 => return Err(unreal(NAME, "to_scalar::<Complex<f32>>", self.ty())),
            DType::Complex128 => return Err(unreal(NAME, "to_scalar::<Complex<f64>>", self.ty())),
            DType::Block(_) => return Err(unreal(NAME, "to_dtype", self.ty())),
        })
    }

    /// The only element of a tensor of any rank. `T` is the type of the tensor's dtype.
    ///
    /// # Errors
    /// Fails if the tensor has not exactly one element, or if the dtype is not `T`'s. Also the
    /// errors of [`eval_all`].
    #[doc(alias = "tolist")]
    pub fn to_scalar<T: Element>(&self) -> RusTorchResult<T> {
        self.only("to_scalar")
    }

    fn only<T: Element>(&self, name: &'static str) -> RusTorchResult<T> {
        let expected = "one element (to_vec reads several)";
        require(name, self.numel() == 1, expected, self.ty())?;
        Ok(self.read(name)?[0])
    }
}

/// An integer as `f64`, if that is the same number.
fn exact(name: &'static str, integer: impl Into<i128>) -> RusTorchResult<f64> {
    let integer = integer.into();
    let number = integer as f64;
    let expected = "a number that f64 holds exactly (to_scalar::<i64>, or u64, reads all)";
    require(name, number as i128 == integer, expected, integer)?;
    Ok(number)
}

/// A value that is read by another method than `item`.
fn unreal(name: &'static str, method: &str, ty: &TensorType) -> RusTorchError {
    OpError::new(
        name,
        format_args!("a real number ({method} reads others)"),
        ty,
    )
    .into()
}
