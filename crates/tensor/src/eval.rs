//! Computing tensors and reading their elements.

use rustorch_ir::ops::Contiguous;
use rustorch_ir::{Graph, OpError};
use rustorch_runtime::Storage;

use crate::capture::Capture;
use crate::devices::{current, runtime};
use crate::error::{RusTorchResult, require};
use crate::tensor::{State, View};
use crate::{Element, Tensor};

/// Bytes that are read from a device at once.
const READ_BYTES: usize = 256 * 1024;

/// Computes several tensors together, so that what they share is computed once. Each then
/// has its value and forgets how it was computed. What lies between keeps no value: name it
/// here if it is to be used again.
///
/// # Errors
/// A placeholder among what they are computed from; a failure that no device could make
/// good; a mistake only found at run time, such as an index out of range.
pub fn eval_all(tensors: &[&Tensor]) -> RusTorchResult<()> {
    let (runtime, routing) = current();
    eval_with(tensors, |graph, leaves| {
        Ok(runtime.run(&graph, leaves, routing)?)
    })
}

/// [`eval_all`] by whoever runs graphs.
pub(crate) fn eval_with(
    tensors: &[&Tensor],
    run: impl FnOnce(Graph, &[Storage]) -> RusTorchResult<Vec<Storage>>,
) -> RusTorchResult<()> {
    let pending: Vec<&Tensor> = (tensors.iter().copied())
        .filter(|tensor| !tensor.is_ready())
        .collect();
    if pending.is_empty() {
        return Ok(());
    }
    let Capture {
        graph,
        leaves,
        states,
    } = Capture::new(&[], &pending)?;
    let results = run(graph, &leaves)?;
    for (tensor, storage) in pending.into_iter().chain(&states).zip(results) {
        tensor.store(View::whole(storage, &tensor.ty().shape));
    }
    Ok(())
}

impl Tensor {
    /// Computes the value, if that was not done yet, and returns the tensor. Its history
    /// is dropped.
    ///
    /// # Errors
    /// See [`eval_all`].
    pub fn eval(&self) -> RusTorchResult<&Self> {
        eval_all(&[self])?;
        Ok(self)
    }

    /// The elements' place after [`Tensor::eval`].
    fn view_of_value(&self) -> RusTorchResult<View> {
        self.eval()?;
        match self.state() {
            State::Ready(view) => Ok(view),
            State::Pending(_) | State::Placeholder => {
                Err(OpError::new("eval", "a value", "none").into())
            }
        }
    }

    /// The computed elements in row-major order as a storage of their own: the tensor's
    /// storage if it shows all of it, else a copy.
    ///
    /// # Errors
    /// See [`eval_all`].
    pub fn storage(&self) -> RusTorchResult<Storage> {
        let view = self.view_of_value()?;
        match view.is_whole(self.dtype()) {
            true => Ok(view.storage),
            false => Ok(self.copied("storage")?.storage),
        }
    }

    fn copied(&self, name: &'static str) -> RusTorchResult<View> {
        Self::apply(name, Contiguous, &[self])?.view_of_value()
    }

    /// The elements in row-major order. `T` is the type of the tensor's dtype.
    ///
    /// # Errors
    /// Another dtype than `T`'s (see [`Tensor::to_dtype`]); those of [`eval_all`].
    pub fn to_vec<T: Element>(&self) -> RusTorchResult<Vec<T>> {
        self.read("to_vec")
    }

    fn read<T: Element>(&self, name: &'static str) -> RusTorchResult<Vec<T>> {
        let expected = format!("a tensor of {}", T::DTYPE);
        require(name, self.dtype() == T::DTYPE, expected, self.ty())?;
        let mut view = self.view_of_value()?;
        if !view.layout.is_contiguous() {
            view = self.copied(name)?;
        }
        let size = size_of::<T>();
        let runtime = runtime();
        let mut elements = Vec::with_capacity(self.numel());
        let mut buffer = vec![0; READ_BYTES.min(self.numel() * size)];
        while elements.len() < self.numel() {
            let bytes = ((self.numel() - elements.len()) * size).min(buffer.len());
            let offset = (view.layout.offset + elements.len()) * size;
            runtime.read(&view.storage, offset, &mut buffer[..bytes])?;
            elements.extend(buffer[..bytes].chunks_exact(size).map(T::from_bytes));
        }
        Ok(elements)
    }

    /// The only element of a tensor of any rank.
    ///
    /// # Errors
    /// More elements, or none; another dtype than `T`'s; those of [`eval_all`].
    pub fn item<T: Element>(&self) -> RusTorchResult<T> {
        require("item", self.numel() == 1, "one element", self.ty())?;
        Ok(self.read("item")?[0])
    }

    /// Makes this tensor one whose memory an update can change: all of a storage, or what
    /// another update, or a trace's caller, makes so.
    pub(crate) fn prepare_update(&self, name: &'static str) -> RusTorchResult<()> {
        match self.state() {
            State::Placeholder => return Ok(()),
            State::Pending(pending) if pending.is_update() => return Ok(()),
            State::Pending(_) | State::Ready(_) => {}
        }
        let whole = self.view_of_value()?.is_whole(self.dtype());
        let expected = "a tensor that is all of its memory (contiguous makes one)";
        let got = format!("a view {}", self.ty());
        require(name, whole, expected, got)
    }
}
