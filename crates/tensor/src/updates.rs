//! Tensors whose memory is written over.

use rustorch_ir::Role;
use rustorch_ir::ops::{Assign, Contiguous, Expand, UpdateSlice};
use rustorch_macros::track_calls;
use rustorch_runtime::Storage;

use crate::Tensor;
use crate::devices::runtime;
use crate::dims::Integer;
use crate::error::{RusTorchResult, require};
use crate::promote::AsOperand;
use crate::value::{State, Value};

#[track_calls]
impl Tensor {
    /// Writes the elements of `source` over this tensor's, in its memory, and makes this handle one
    /// on the tensor with that change. `source` is broadcast to this tensor's shape and converted
    /// to its dtype.
    ///
    /// The change happens when the result is computed. What was recorded before it reads the old
    /// elements if it is computed before, or together with it, and is an error afterwards. Other
    /// handles on this memory show the new elements once they are there. Memory whose elements were
    /// lost with a device is written at once.
    ///
    /// # Errors
    /// A `source` that cannot be broadcast; a block dtype; a view of a part of some memory; a
    /// tensor, or source, that wants a gradient outside [`no_grad`](crate::no_grad).
    pub fn copy_(&mut self, source: &Self) -> RusTorchResult<&mut Self> {
        const NAME: &str = "copy_";
        if source.value().key() == self.value().key() {
            return Ok(self);
        }
        let lost = lost_memory(self.value());
        if lost.is_none() {
            self.prepare_update(NAME)?;
        }
        let shape = self.ty().shape.clone();
        let mut source = Self::apply(NAME, Expand { shape }, &[&source.cast(NAME, self.dtype())?])?;
        if let Some((value, memory)) = lost {
            source.write_to(&memory)?;
            self.set_value(value);
            return Ok(self);
        }
        if source.may_share_memory(self) {
            source = Self::apply(NAME, Contiguous, &[&source])?;
        }
        let updated = Self::apply(NAME, Assign, &[self, &source])?;
        self.set_value(updated.value().clone());
        Ok(self)
    }

    /// Writes one value, a number or a tensor of rank 0, over the elements, as [`Tensor::copy_`]
    /// writes.
    ///
    /// # Errors
    /// As [`Tensor::fill`] and [`Tensor::copy_`].
    pub fn fill_(&mut self, value: impl AsOperand) -> RusTorchResult<&mut Self> {
        let filled = self.fill(value)?;
        self.copy_(&filled)
    }

    /// Writes zeros over the elements, as [`Tensor::copy_`] writes.
    ///
    /// # Errors
    /// As [`Tensor::copy_`].
    pub fn zero_(&mut self) -> RusTorchResult<&mut Self> {
        self.fill_(0)
    }

    /// Writes `source` into this tensor's memory at index `start` of `dim`, and returns the
    /// tensor with that change. `source` has this tensor's shape except in `dim`, and its
    /// dtype, or both are floats; `start` is one `i32`, read at run time.
    ///
    /// The change happens when the result is computed, as that of [`Tensor::copy_`] does. From then
    /// on this tensor shows it too, so read the result, not this tensor. What is not in memory yet
    /// is computed first, unless it is the result of another update.
    ///
    /// # Errors
    /// A source or start other than these; a view of a part of some memory; when computed,
    /// a range that does not fit.
    pub fn update_slice_(
        &self,
        source: &Self,
        dim: impl Integer,
        start: &Self,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "update_slice_";
        let dim = self.dim(NAME, dim)?;
        self.prepare_update(NAME)?;
        Self::apply(NAME, UpdateSlice { dim }, &[self, source, start])
    }

    /// Makes this tensor one whose memory an update can change: all of a storage, or what
    /// another update, or a trace's caller, makes so.
    fn prepare_update(&self, name: &'static str) -> RusTorchResult<()> {
        match self.state() {
            State::Placeholder => return Ok(()),
            State::Failed(error) => return Err((*error).clone()),
            State::Pending(pending) if pending.is_update() => return Ok(()),
            State::Pending(_) | State::Ready(_) | State::Scalar(_) => {}
        }
        let whole = self.view_of_value()?.is_whole(self.dtype());
        let expected = "a tensor that is all of its memory (contiguous makes one)";
        let got = format_args!("a view {}", self.ty());
        require(name, whole, expected, got)
    }

    /// Writes the elements to memory of their size, which nobody waits for.
    fn write_to(&self, memory: &Storage) -> RusTorchResult<()> {
        let dense = Self::apply("copy_", Contiguous, &[self])?;
        let view = dense.view_of_value()?;
        let mut bytes = vec![0; memory.bytes()];
        let size = bytes.len() / self.numel().max(1);
        let runtime = runtime();
        runtime.read(&view.storage, view.layout.offset * size, &mut bytes)?;
        Ok(runtime.write(memory, &bytes)?)
    }

    /// Could this be a view of `other`'s memory?
    fn may_share_memory(&self, other: &Self) -> bool {
        match self.state() {
            State::Ready(view) => other
                .storage_in_memory()
                .is_some_and(|memory| memory.same_as(&view.storage)),
            State::Pending(pending) => pending.op.def().role() == Role::View,
            State::Scalar(_) | State::Placeholder | State::Failed(_) => false,
        }
    }
}

/// The memory that a tensor is all of, or updates, if its elements were lost with a device; and the value
/// that shows it.
fn lost_memory(value: &Value) -> Option<(Value, Storage)> {
    let mut value = value.clone();
    loop {
        value = match value.state() {
            State::Ready(view) => {
                let is_lost = view.is_whole(value.ty().dtype) && view.storage.valid_on().is_empty();
                return is_lost.then(|| (value.clone(), view.storage.clone()));
            }
            State::Pending(pending) if pending.is_update() => pending.inputs[0].clone(),
            _ => return None,
        }
    }
}
