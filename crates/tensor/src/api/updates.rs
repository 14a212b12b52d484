//! Tensors whose memory is written over.

use std::sync::Arc;

use rustorch_ir::ops::{Assign, Contiguous, Expand, UpdateSlice};
use rustorch_ir::order::sort_by_key;
use rustorch_ir::{Layout, Role};
use rustorch_macros::track_calls;
use rustorch_runtime::Storage;

use crate::Tensor;
use crate::api::promote::AsValue;
use crate::args::dims::Integer;
use crate::autograd::{Track, Writes, is_grad_enabled};
use crate::device::devices::runtime;
use crate::error::{RusTorchResult, require};
use crate::lazy::value::{State, Value, View};
use crate::tensor::WriteLimit;

#[track_calls]
impl Tensor {
    /// Writes the elements of `source` over this tensor's, in its memory. This handle then shows the changed tensor.
    /// `source` is broadcast to this tensor's shape and converted to its dtype. Gradients go to `source`.
    ///
    /// The write happens when the result is computed, or when a clone or a view of this tensor is used. It happens even
    /// if this handle is gone by then. Operations that were recorded before have the old elements, and are computed
    /// before it or together with it. Memory whose elements were lost with a device is written at once. So is a view of
    /// memory that other tensors share. Writing a part of it costs as much as writing all of it. Gradients go through
    /// the write: to the origin of a clone or view, and to its other views. If `source` is known only when a
    /// [`Trace`](crate::Trace) runs, other handles show the elements that the runs have written.
    ///
    /// ```
    /// # use rustorch_tensor::{RusTorchResult, tensor};
    /// # fn main() -> RusTorchResult<()> {
    /// let mut w = tensor![1.0, 2.0];
    /// w.requires_grad_(true)?;
    /// let x = tensor![[0.0, 0.0], [5.0, 6.0]];
    /// x.i(0)?.copy_(&w.square()?)?;
    /// x.sum_all()?.backward()?;
    /// assert_eq!(w.grad().expect("x follows from w").to_vec::<f32>()?, [2.0, 4.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails for a `source` that does not broadcast, a block dtype, or elements that overlap in
    /// memory. Outside [`no_grad`](crate::no_grad) it fails for a leaf that requires a gradient,
    /// and for its views. If a gradient is required, it also fails for a view of part of the
    /// memory.
    pub fn copy_(&mut self, source: &Self) -> RusTorchResult<&mut Self> {
        const NAME: &str = "copy_";
        if source.value().key() == self.value().key() {
            self.require_writable(NAME, source.is_tracked())?;
            return Ok(self);
        }
        self.require_apart(NAME, Shared::Alike, &[Some(source)])?;
        let writes = self.writes();
        let _turn = writes.as_deref().map(Writes::turn);
        let source = source.cast(NAME, self.dtype())?;
        // Its gradient would have no way to what is written over.
        match is_grad_enabled() && self.is_tracked() {
            true => self.write(NAME, &source),
            false => {
                if self.is_alone() {
                    self.announce_change(NAME);
                }
                self.replace(NAME, source)
            }
        }
    }

    /// Takes the elements of a source of this dtype, in memory where this tensor has some or others show it.
    pub(crate) fn replace(
        &mut self,
        name: &'static str,
        source: Self,
    ) -> RusTorchResult<&mut Self> {
        if !self.is_alone() || self.value().pin() != source.value().pin() {
            return self.write(name, &source);
        }
        self.require_writable(name, source.is_tracked())?;
        let shape = &self.ty().shape;
        let source = match source.ty().shape == *shape {
            true => source,
            false => source.expand(shape)?,
        };
        self.become_other(name, source)?;
        Ok(self)
    }

    /// Writes a source of this dtype over the elements.
    fn write(&mut self, name: &'static str, source: &Self) -> RusTorchResult<&mut Self> {
        self.require_writable(name, source.is_tracked())?;
        let lost = lost_memory(self.value());
        let part = match lost {
            Some(_) => None,
            None => {
                self.settle()?;
                let part = self.prepare_change(name)?;
                part.or_else(|| self.shared_view().filter(|_| !source.is_traced()))
            }
        };
        let shape = self.ty().shape.clone();
        let mut source = Self::apply(name, Expand { shape }, &[source])?;
        if let Some(part) = part {
            self.write_part(name, &part, &source)?;
            return Ok(self);
        }
        if let Some((value, memory)) = lost {
            source.write_to(&memory)?;
            self.base().iter().for_each(|base| base.drop_write(&memory));
            self.set_value(value);
            return Ok(self);
        }
        if source.may_share_memory(self) {
            source = Self::apply(name, Contiguous, &[&source])?;
        }
        let updated = Self::apply(name, Assign, &[self, &source])?;
        self.become_updated(name, updated);
        Ok(self)
    }

    /// Fails for a copy that another tensor would have to show, were it a view. While gradients are recorded, it fails
    /// for a leaf that requires a gradient, and a view of one: earlier results would have wrong gradients. It then also
    /// fails for views that PyTorch does not write over; `is_tracked` says whether the new elements require a gradient.
    pub(crate) fn require_writable(
        &self,
        name: &'static str,
        is_tracked: bool,
    ) -> RusTorchResult<()> {
        let is_copy = self.base().is_some_and(|base| base.is_shown_copy());
        let expected = "a tensor or a view (copy makes a tensor of its own; index_put_ and copy_ write to the whole)";
        let got = "a copy, of a tensor that has other handles, where PyTorch has a view";
        require(name, !is_copy, expected, got)?;
        let shows_leaf = || self.base().is_some_and(|base| base.is_of_leaf());
        let is_wanted = |track: Arc<Track>| track.is_leaf() || shows_leaf();
        let is_leaf = is_grad_enabled() && self.track().is_some_and(is_wanted);
        let expected = "a tensor that is neither a parameter nor a view of one, outside no_grad";
        require(name, !is_leaf, expected, "one that wants a gradient")?;
        let (is_legal, expected, got) = match self.write_limit() {
            WriteLimit::OneOfSeveral => (
                !(is_tracked || self.is_tracked()),
                "a view whose gradients go through a write (copy makes a tensor of its own; narrow, select and \
                slice make such a view)",
                "one of several that unbind, split, chunk or a loop over a tensor made",
            ),
            WriteLimit::NoGrad => (
                false,
                "a view that was made where it is written (make it outside no_grad, or write inside)",
                "one made in no_grad, of a tensor that requires a gradient",
            ),
            WriteLimit::None => return Ok(()),
        };
        require(name, is_legal || !is_grad_enabled(), expected, got)
    }

    /// Fails for an operand that shows a part of the memory that is written, by PyTorch's rules for `shared` memory.
    /// These rules leave alone what is not dense.
    pub(crate) fn require_apart(
        &self,
        name: &'static str,
        shared: Shared,
        operands: &[Option<&Self>],
    ) -> RusTorchResult<()> {
        let is_legal = |operand: &&Self| match self.overlap(operand) {
            Overlap::None => true,
            Overlap::Alike => shared == Shared::Alike,
            Overlap::Part => false,
        };
        let Some(operand) = operands.iter().flatten().find(|operand| !is_legal(operand)) else {
            return Ok(());
        };
        let expected = match shared {
            Shared::Alike => {
                "operands that show the written elements in the same order, or none of them"
            }
            Shared::Nothing => "operands that show none of the written elements",
        };
        let expected = format_args!("{expected} (copy makes a tensor of its own)");
        let got = format_args!("{}, which shows some", operand.ty());
        require(name, false, expected, got)
    }

    /// How much the memory of these elements has in common with that of others, where both are dense.
    fn overlap(&self, other: &Self) -> Overlap {
        let (own, others) = (self.value(), other.value());
        if own.key() == others.key() {
            return Overlap::Alike;
        }
        let (a, b) = (own.layout(), others.layout());
        if !is_dense(&a) || !is_dense(&b) || !own.shares_memory(others) {
            return Overlap::None;
        }
        let bytes = |layout: &Layout, tensor: &Self| {
            let size = tensor.dtype().size().unwrap_or(1);
            let begin = layout.offset * size;
            begin..begin + layout.shape.elements() * size
        };
        let (own, others) = (bytes(&a, self), bytes(&b, other));
        if own.end.min(others.end) <= own.start.max(others.start) {
            return Overlap::None;
        }
        match own == others && a.strides == b.strides {
            true => Overlap::Alike,
            false => Overlap::Part,
        }
    }

    /// Writes one value, a number or a tensor of rank 0, over the elements, as [`Tensor::copy_`]
    /// writes. Elements that [`Tensor::expand`] shows several times get it as well.
    ///
    /// # Errors
    /// The same errors as [`Tensor::fill`] and [`Tensor::copy_`].
    pub fn fill_(&mut self, value: impl AsValue) -> RusTorchResult<&mut Self> {
        let Layout { shape, strides, .. } = self.value().layout();
        let mut repeated = (0..shape.len()).filter(|&dim| strides[dim] == 0 && shape[dim] > 1);
        if let Some(dim) = repeated.next() {
            self.narrow(dim, 0, 1)?.fill_(value.as_value()?)?;
            return Ok(self);
        }
        let filled = self.fill(value.as_value()?)?;
        self.copy_(&filled)
    }

    /// Writes zeros over the elements, as [`Tensor::copy_`] writes.
    ///
    /// # Errors
    /// The same errors as [`Tensor::copy_`].
    pub fn zero_(&mut self) -> RusTorchResult<&mut Self> {
        self.fill_(0)
    }

    /// Writes `source` into this tensor's memory at index `start` of `dim`, and returns the
    /// tensor with that change. `source` has this tensor's shape except in `dim`, and its
    /// dtype, or both are floats; `start` is one `i32`, read at run time.
    ///
    /// The change happens when the result is computed, as that of [`Tensor::copy_`] does. From then
    /// on this tensor shows it too, so read the result, not this tensor. A tensor that is not in
    /// memory yet is computed first, unless it is the result of another update.
    ///
    /// # Errors
    /// Fails for an unsupported source or start, or for a view of part of the memory. Evaluation
    /// fails for a range that does not fit.
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

    /// Makes this tensor one whose memory an update can change. It may be a whole storage, or
    /// memory prepared by another update or a trace's caller.
    fn prepare_update(&self, name: &'static str) -> RusTorchResult<()> {
        let part = self.prepare_change(name)?;
        let expected = "a tensor that is all of its memory (contiguous makes one)";
        let got = format_args!("a view {}", self.ty());
        require(name, part.is_none(), expected, got)
    }

    /// The same; a view of a part of a storage is returned.
    fn prepare_change(&self, name: &'static str) -> RusTorchResult<Option<Arc<View>>> {
        match self.state() {
            State::Placeholder => return Ok(None),
            State::Failed(error) => return Err((*error).clone()),
            State::Pending(pending) if pending.is_update() => return Ok(None),
            State::Pending(_) | State::Ready(_) | State::Scalar(_) => {}
        }
        self.show_memory()?;
        let view = self.view_of_value()?;
        if view.is_whole(self.dtype()) {
            return Ok(None);
        }
        let expected = "elements that do not overlap in memory (contiguous separates them)";
        let got = format_args!("a view {}", self.ty());
        require(name, !may_overlap(&view.layout), expected, got)?;
        Ok(Some(view))
    }

    /// Computes the base of this view, if neither was computed, so that both show the same memory.
    fn show_memory(&self) -> RusTorchResult<()> {
        if let Some(viewed) = self.value().viewed() {
            Self::of(viewed, None).eval()?;
            self.value().show();
        }
        Ok(())
    }

    /// The elements of this tensor, if it is a view that shares them.
    fn shared_view(&self) -> Option<Arc<View>> {
        self.value().view().filter(|view| view.is_shared())
    }

    /// Writes `source`, of this shape and dtype, over this tensor's part of some memory. The tensor that it is
    /// a view of is computed with that.
    fn write_part(&self, name: &'static str, part: &View, source: &Self) -> RusTorchResult<()> {
        let size = self.dtype().size().unwrap_or(1);
        let count = [part.storage.bytes() / size];
        let whole = View::whole(part.storage.clone(), &count.into());
        let mut memory = Self::of(Value::ready(self.dtype(), self.value().pin(), whole), None);
        let base = self.base();
        let root = base.and_then(|base| base.root(&part.storage, self.dtype()));
        let is_tracked = is_grad_enabled() && (self.is_tracked() || source.is_tracked());
        let expected = "if a gradient is required, a view of a tensor that is all of its memory \
            and was written over only through views since (slice_scatter and similar methods return \
            the changed tensor)";
        let got = format_args!("a view {}", self.ty());
        require(name, !is_tracked || root.is_some(), expected, got)?;
        let (old, source) = match &root {
            Some(root) if is_tracked => (root.ravel()?, source.clone()),
            _ => (memory.clone(), source.detach()),
        };
        let Layout {
            shape,
            strides,
            offset,
        } = &part.layout;
        let new = match part.is_whole(self.dtype()) && !old.is_tracked() {
            // A copy, which is not a view of what the source is one of.
            true => Self::apply(name, Contiguous, &[&source.reshape(count)?])?,
            false => old.as_strided_scatter(&source, &shape[..], &strides[..], *offset)?,
        };
        memory.copy_(&new.detach())?.eval()?;
        if let Some((base, root)) = base.zip(root) {
            let (of, track) = match is_tracked {
                true => (&memory, new.track()),
                false => (&root, root.own_track()),
            };
            if track.is_some() {
                base.change(&part.storage, of.still(name, track, root.value()));
            }
        }
        Ok(())
    }

    /// Writes the elements to memory of their size, without a wait.
    fn write_to(&self, memory: &Storage) -> RusTorchResult<()> {
        let dense = Self::apply("copy_", Contiguous, &[self])?.storage()?;
        let mut bytes = vec![0; memory.bytes()];
        let runtime = runtime();
        runtime.read(&dense, 0, &mut bytes)?;
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

/// The memory that an operand may share with the tensor that is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shared {
    /// The same elements in the same order, each of which is read before it is written.
    Alike,
    Nothing,
}

/// The memory that two tensors have in common.
enum Overlap {
    None,
    Alike,
    Part,
}

/// Do the elements fill a range of memory, in whatever order of the dimensions?
fn is_dense(layout: &Layout) -> bool {
    if layout.shape.elements() == 0 {
        return false;
    }
    let dims = layout.strides.iter().zip(&*layout.shape);
    let mut dims: Vec<_> = dims.filter(|(_, size)| **size > 1).collect();
    sort_by_key(&mut dims, |dim| *dim);
    let mut filled = 1;
    dims.into_iter().all(|(stride, size)| {
        let is_next = *stride == filled;
        filled *= size;
        is_next
    })
}

/// May elements lie in one place, as those that are broadcast do?
fn may_overlap(layout: &Layout) -> bool {
    let dims = layout.strides.iter().zip(&*layout.shape);
    let mut dims: Vec<_> = dims.filter(|(_, size)| **size > 1).collect();
    sort_by_key(&mut dims, |dim| *dim);
    let mut reached = 0;
    !dims.into_iter().all(|(stride, size)| {
        let is_beyond = *stride > reached;
        reached += stride * (size - 1);
        is_beyond
    })
}

/// The memory that a tensor is all of, or updates, if its elements were lost with a device; and the value
/// that shows it.
fn lost_memory(value: &Value) -> Option<(Value, Storage)> {
    if !value.memory()?.valid_on().is_empty() {
        return None;
    }
    let mut value = value.clone();
    loop {
        value = match value.state() {
            State::Ready(view) => {
                let is_whole = view.is_whole(value.ty().dtype);
                return is_whole.then(|| (value.clone(), view.storage.clone()));
            }
            State::Pending(pending) if pending.is_update() => pending.inputs[0].clone(),
            _ => return None,
        }
    }
}
