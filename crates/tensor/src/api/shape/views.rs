//! Views of the same elements.
//!
//! A view of a tensor in memory shares its storage; nothing is copied.

use rustorch_ir::ops::{AsStrided, Contiguous, Expand, Permute, Reshape};
use rustorch_ir::{Layout, Op, Shape, TensorType, broadcast_shapes};
use rustorch_macros::track_calls;

use crate::Tensor;
use crate::args::dims::Sizes;
use crate::args::dims::{Integer, IntoDims, IntoShape, IntoSizes};
use crate::autograd::is_grad_enabled;
use crate::error::{RusTorchResult, require};
use crate::lazy::value::Value;
use crate::tensor::check_type;

#[track_calls]
impl Tensor {
    /// The same elements, in row-major order, in another shape. One size may be −1: it follows from the others. The
    /// result is a view where strides allow it, else a copy.
    ///
    /// # Errors
    /// Fails if the number of elements differs.
    pub fn reshape(&self, shape: impl IntoSizes) -> RusTorchResult<Self> {
        self.reshaped("reshape", &shape.into_sizes())
    }

    /// [`Tensor::reshape`] without copying.
    ///
    /// # Errors
    /// Fails if the number of elements differs. Also fails if no strides can give this shape,
    /// whether the elements are computed or not.
    pub fn view(&self, shape: impl IntoSizes) -> RusTorchResult<Self> {
        const NAME: &str = "view";
        let shape = shape.into_sizes().infer(NAME, self.numel())?;
        let layout = self.value().layout();
        let got = format!(
            "{shape:?} of {} with strides {:?}",
            self.ty(),
            layout.strides
        );
        let op = Op::from(Reshape { shape });
        let is_view = self.dtype().is_block() || op.def().view(&layout).is_some();
        let expected = "a shape that needs no copy (reshape makes one)";
        require(NAME, is_view, expected, got)?;
        Self::apply(NAME, op, &[self])
    }

    fn reshaped(&self, name: &'static str, sizes: &Sizes) -> RusTorchResult<Self> {
        let shape = sizes.infer(name, self.numel())?;
        Self::apply(name, Reshape { shape }, &[self])
    }

    /// Joins the dimensions from `start` to `end`, both included. A tensor of rank 0 becomes `[1]`.
    ///
    /// # Errors
    /// Fails if the dimensions do not exist, or if `start` is after `end`.
    pub fn flatten(&self, start: impl Integer, end: impl Integer) -> RusTorchResult<Self> {
        let end = end.to_isize();
        let start = start.to_isize();
        if self.rank() == 0 {
            let is_there = [start, end].iter().all(|dim| matches!(dim, -1 | 0));
            let got = format_args!("{start} and {end}");
            require("flatten", is_there, "dimensions 0 or -1 of rank 0", got)?;
            return self.reshape([1]);
        }
        let (first, last) = (self.dim("flatten", start)?, self.dim("flatten", end)?);
        let got = format_args!("{start} and {end}");
        require("flatten", first <= last, "start <= end", got)?;
        let dims = self.shape();
        let joined = dims[first..=last].iter().product();
        let shape = [&dims[..first], &[joined], &dims[last + 1..]].concat();
        self.reshape(&shape[..])
    }

    /// Removes the named dimensions (`None`: all) that have size 1.
    ///
    /// # Errors
    /// Fails if a dimension does not exist.
    pub fn squeeze(&self, dims: impl IntoDims) -> RusTorchResult<Self> {
        let dims = dims.into_dims().resolve("squeeze", self.rank())?;
        let kept = |&(d, &size): &(usize, &usize)| size != 1 || !dims.contains(&d);
        let shape = (self.shape().iter().enumerate().filter(kept))
            .map(|(_, &size)| size)
            .collect();
        Self::apply("squeeze", Reshape { shape }, &[self])
    }

    /// Inserts a dimension of size 1 at `dim`, between −rank − 1 and rank.
    ///
    /// # Errors
    /// Fails if the position does not exist.
    pub fn unsqueeze(&self, dim: impl Integer) -> RusTorchResult<Self> {
        let at = rustorch_ir::normalize_dim("unsqueeze", dim.to_isize(), self.rank() + 1)?;
        let mut shape = self.ty().shape.clone();
        shape.to_mut().insert(at, 1);
        Self::apply("unsqueeze", Reshape { shape }, &[self])
    }

    /// Joins all dimensions into one.
    ///
    /// # Errors
    /// Fails only for block formats.
    pub fn ravel(&self) -> RusTorchResult<Self> {
        self.reshaped("ravel", &[-1].into_sizes())
    }

    /// Splits a dimension into several of these sizes; one may be −1.
    ///
    /// # Errors
    /// Fails if the dimension does not exist, or if the sizes do not multiply to it.
    pub fn unflatten(&self, dim: impl Integer, sizes: impl IntoSizes) -> RusTorchResult<Self> {
        const NAME: &str = "unflatten";
        let (dim, dims) = (self.dim(NAME, dim)?, self.shape());
        let inner = sizes.into_sizes().infer(NAME, dims[dim])?;
        let shape = [&dims[..dim], &inner, &dims[dim + 1..]].concat().into();
        Self::apply(NAME, Reshape { shape }, &[self])
    }

    /// [`Tensor::view`] in another tensor's shape.
    ///
    /// # Errors
    /// The same errors as [`Tensor::view`].
    pub fn view_as(&self, other: &Self) -> RusTorchResult<Self> {
        self.view(other.shape())
    }

    /// [`Tensor::reshape`] to another tensor's shape.
    ///
    /// # Errors
    /// The same errors as [`Tensor::reshape`].
    pub fn reshape_as(&self, other: &Self) -> RusTorchResult<Self> {
        self.reshape(other.shape())
    }

    /// A number as `[1]`; other tensors are unchanged.
    ///
    /// # Errors
    /// Fails only for block formats.
    pub fn atleast_1d(&self) -> RusTorchResult<Self> {
        match self.rank() {
            0 => self.reshape([1]),
            _ => Ok(self.clone()),
        }
    }

    /// A number as `[1, 1]`, a vector as one row.
    ///
    /// # Errors
    /// Fails only for block formats.
    pub fn atleast_2d(&self) -> RusTorchResult<Self> {
        match self.rank() {
            0 => self.reshape([1, 1]),
            1 => self.unsqueeze(0),
            _ => Ok(self.clone()),
        }
    }

    /// A number as `[1, 1, 1]`, a vector as `[1, n, 1]`, a matrix as `[m, n, 1]`.
    ///
    /// # Errors
    /// Fails only for block formats.
    pub fn atleast_3d(&self) -> RusTorchResult<Self> {
        match self.rank() {
            0 => self.reshape([1, 1, 1]),
            1 => self.unsqueeze(0)?.unsqueeze(-1),
            2 => self.unsqueeze(-1),
            _ => Ok(self.clone()),
        }
    }

    /// Dimensions in another order: dimension `i` of the result is `dims[i]` of this tensor.
    ///
    /// # Errors
    /// Fails if `dims` does not name each dimension once.
    pub fn permute(&self, dims: impl IntoDims) -> RusTorchResult<Self> {
        let dims = dims.into_dims().listed("permute", self.rank())?;
        Self::apply("permute", Permute { dims }, &[self])
    }

    /// Exchanges two dimensions.
    ///
    /// # Errors
    /// Fails if a dimension does not exist.
    pub fn transpose(&self, a: impl Integer, b: impl Integer) -> RusTorchResult<Self> {
        let (a, b) = (
            self.wrap_dim("transpose", a)?,
            self.wrap_dim("transpose", b)?,
        );
        if a == b {
            return Ok(self.clone().viewing(self));
        }
        let mut dims: smallvec::SmallVec<[usize; 6]> = (0..self.rank()).collect();
        dims.swap(a, b);
        Self::apply("transpose", Permute { dims }, &[self])
    }

    /// [`Tensor::transpose`] by NumPy's name.
    ///
    /// # Errors
    /// The same errors as [`Tensor::transpose`].
    pub fn swapaxes(&self, a: impl Integer, b: impl Integer) -> RusTorchResult<Self> {
        self.transpose(a, b)
    }

    /// [`Tensor::transpose`] by another name.
    ///
    /// # Errors
    /// The same errors as [`Tensor::transpose`].
    pub fn swapdims(&self, a: impl Integer, b: impl Integer) -> RusTorchResult<Self> {
        self.transpose(a, b)
    }

    /// Moves the dimensions `source` to the positions `destination`; the others keep their order.
    ///
    /// # Errors
    /// Fails for lists of different lengths, or for a dimension that does not exist or is listed
    /// twice.
    pub fn movedim(
        &self,
        source: impl IntoDims,
        destination: impl IntoDims,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "movedim";
        let source = source.into_dims().listed(NAME, self.rank())?;
        let destination = destination.into_dims().listed(NAME, self.rank())?;
        let got = format_args!("{} and {}", source.len(), destination.len());
        let same = source.len() == destination.len();
        require(NAME, same, "as many sources as destinations", got)?;
        let mut rest = (0..self.rank()).filter(|dim| !source.contains(dim));
        let dim_at = |place| match destination.iter().position(|&to| to == place) {
            Some(i) => Some(source[i]),
            None => rest.next(),
        };
        let dims = (0..self.rank()).filter_map(dim_at).collect();
        Self::apply(NAME, Permute { dims }, &[self])
    }

    /// [`Tensor::movedim`] by NumPy's name.
    ///
    /// # Errors
    /// The same errors as [`Tensor::movedim`].
    pub fn moveaxis(
        &self,
        source: impl IntoDims,
        destination: impl IntoDims,
    ) -> RusTorchResult<Self> {
        self.movedim(source, destination)
    }

    /// Transposes each matrix of the last two dimensions: PyTorch's `mT`.
    ///
    /// # Errors
    /// Fails for rank below 2.
    pub fn mt(&self) -> RusTorchResult<Self> {
        require("mt", self.rank() >= 2, "rank 2 or more", self.ty())?;
        self.transpose(-2, -1)
    }

    /// Transposes and conjugates each matrix of the last two dimensions: PyTorch's `mH`.
    ///
    /// # Errors
    /// Fails for rank below 2.
    pub fn adjoint(&self) -> RusTorchResult<Self> {
        require("adjoint", self.rank() >= 2, "rank 2 or more", self.ty())?;
        self.transpose(-2, -1)?.conj()
    }

    /// Transposes and conjugates a matrix; conjugates a tensor of rank 0.
    ///
    /// # Errors
    /// Fails for an unsupported rank.
    pub fn h(&self) -> RusTorchResult<Self> {
        let legal = matches!(self.rank(), 0 | 2);
        require("h", legal, "a matrix, or rank 0", self.ty())?;
        self.t()?.conj()
    }

    /// The tensor itself: it never has PyTorch's conjugate bit.
    ///
    /// # Errors
    /// Never fails.
    pub fn resolve_conj(&self) -> RusTorchResult<Self> {
        Ok(self.clone())
    }

    /// The tensor itself: it never has PyTorch's negative bit.
    ///
    /// # Errors
    /// Never fails.
    pub fn resolve_neg(&self) -> RusTorchResult<Self> {
        Ok(self.clone())
    }

    /// Transposes a matrix; tensors of rank 0 and 1 are unchanged.
    ///
    /// # Errors
    /// Fails for rank above 2.
    pub fn t(&self) -> RusTorchResult<Self> {
        require("t", self.rank() <= 2, "rank 2 or less", self.ty())?;
        match self.rank() {
            2 => self.transpose(0, 1),
            _ => Ok(self.clone().viewing(self)),
        }
    }

    /// Broadcasts to a shape, aligned at the last dimension; −1 keeps a size.
    ///
    /// # Errors
    /// Fails for a size that differs from a kept dimension other than 1.
    pub fn expand(&self, shape: impl IntoSizes) -> RusTorchResult<Self> {
        let shape: Shape = shape.into_sizes().keep("expand", self.shape())?;
        Self::apply("expand", Expand { shape }, &[self])
    }

    /// Broadcasts to a shape: another name of [`Tensor::expand`].
    ///
    /// # Errors
    /// Fails for a size that differs from a kept dimension other than 1.
    pub fn broadcast_to(&self, shape: impl IntoSizes) -> RusTorchResult<Self> {
        self.expand(shape)
    }

    /// [`Tensor::expand`] to another tensor's shape.
    ///
    /// # Errors
    /// The same errors as [`Tensor::expand`].
    pub fn expand_as(&self, other: &Self) -> RusTorchResult<Self> {
        self.expand(other.shape())
    }

    /// The shape that all of these broadcast to: aligned at the last dimension, sizes are equal or 1. `[]` for an empty
    /// list.
    ///
    /// # Errors
    /// Fails for sizes that differ.
    pub fn broadcast_shapes(shapes: &[&[usize]]) -> RusTorchResult<Shape> {
        let both = |a: Shape, b: &&[usize]| broadcast_shapes("broadcast_shapes", &a, b);
        Ok(shapes.iter().try_fold(Shape::default(), both)?)
    }

    /// Tensors broadcast to their common shape.
    ///
    /// # Errors
    /// Fails for shapes that do not broadcast.
    pub fn broadcast_tensors(tensors: &[&Self]) -> RusTorchResult<Vec<Self>> {
        let both = |a: Shape, b: &&Self| broadcast_shapes("broadcast_tensors", &a, b.shape());
        let shape = tensors.iter().try_fold(Shape::default(), both)?;
        tensors.iter().map(|t| t.expand(&shape)).collect()
    }

    /// Sums to a shape that broadcasts to this tensor's; the inverse of broadcasting. For integers and booleans the
    /// result is an `i64`, if anything is summed or the rank is 0.
    ///
    /// # Errors
    /// Fails for a shape that does not broadcast to this tensor's.
    pub fn sum_to_size(&self, shape: impl IntoShape) -> RusTorchResult<Self> {
        const NAME: &str = "sum_to_size";
        let shape = &shape.into_shape()[..];
        let broadcast = broadcast_shapes(NAME, shape, self.shape());
        let fits = broadcast.is_ok_and(|whole| *whole == *self.shape());
        let expected = format_args!("a shape that broadcasts to {}", self.ty().shape);
        require(NAME, fits, expected, format_args!("{shape:?}"))?;
        let lead = self.rank() - shape.len();
        let is_summed = |&d: &usize| d < lead || (shape[d - lead] == 1 && self.shape()[d] != 1);
        let dims: Vec<isize> = (0..self.rank())
            .filter(is_summed)
            .map(|d| d as isize)
            .collect();
        match dims.is_empty() && self.rank() > 0 {
            true => Ok(self.clone()),
            false => self.sum(&dims[..], true)?.reshape(shape),
        }
    }

    /// The tensor's memory seen with other sizes, strides and offset, in elements. The offset defaults to the tensor's
    /// own. For a pending tensor they refer to the memory that it will have. Elements may appear several times.
    /// Gradients go to the elements that the tensor shows. There are no negative strides, as in PyTorch.
    ///
    /// # Errors
    /// Fails for an element outside the memory, or unless each size has a stride. Also fails for a
    /// block format.
    pub fn as_strided(
        &self,
        size: impl IntoShape,
        stride: impl IntoShape,
        offset: impl Into<Option<usize>>,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "as_strided";
        let (size, stride, offset) = (
            &size.into_shape()[..],
            &stride.into_shape()[..],
            offset.into(),
        );
        let got = format_args!("{size:?} and {stride:?}");
        require(
            NAME,
            size.len() == stride.len(),
            "a stride for each size",
            got,
        )?;
        let reach = |(n, s): (&usize, &usize)| n.saturating_sub(1).checked_mul(*s);
        let mut reaches = size.iter().zip(stride).map(reach);
        let end = reaches.try_fold(offset.unwrap_or(0), |end, reach| end.checked_add(reach?));
        let fits = end.is_some_and(|end| end < isize::MAX as usize);
        require(NAME, fits, "offsets that fit the address space", got)?;
        let own = self.memory_layout()?;
        let layout = Layout {
            shape: size.into(),
            strides: stride.into(),
            offset: offset.unwrap_or(own.offset),
        };
        let shown = self.seen_as(NAME, &layout)?;
        if !(is_grad_enabled() && self.is_tracked()) {
            return Ok(shown);
        }
        let count = self.memory_elements();
        let memory = match self.numel() == count && own.is_contiguous() {
            true => self.ravel()?,
            false => Self::zeros([count], self.dtype())?.as_strided_scatter(
                self,
                &own.shape[..],
                &own.strides[..],
                own.offset,
            )?,
        };
        shown.with_gradient_through(NAME, AsStrided { layout }, &memory)
    }

    /// Another look at this tensor's elements, whose layout follows from that of this tensor.
    pub(crate) fn restrided(
        &self,
        name: &'static str,
        change: impl Fn(&Layout) -> Layout,
    ) -> RusTorchResult<Self> {
        let shown = self.seen_as(name, &change(&self.memory_layout()?))?;
        if !(is_grad_enabled() && self.is_tracked()) {
            return Ok(shown);
        }
        // The gradient needs no more than the elements in their order.
        let layout = change(&Layout::contiguous(&self.ty().shape));
        shown.with_gradient_through(name, AsStrided { layout }, &self.ravel()?)
    }

    /// Layout in the memory that it has or will have.
    fn memory_layout(&self) -> RusTorchResult<Layout> {
        self.settle()?;
        self.value().show();
        Ok(self.value().layout())
    }

    /// Number of elements of the memory that it has or will have.
    fn memory_elements(&self) -> usize {
        let root = self.value().root();
        match root.view() {
            Some(view) => view.storage.bytes() / self.dtype().size().unwrap_or(1),
            None => root.ty().shape.elements(),
        }
    }

    /// A view of its memory in this layout, for which no gradient is recorded.
    fn seen_as(&self, name: &'static str, layout: &Layout) -> RusTorchResult<Self> {
        let expected = "a tensor of scalars (cast block formats first)";
        require(name, !self.dtype().is_block(), expected, self.ty())?;
        check_type(name, &TensorType::new(layout.shape.clone(), self.dtype()))?;
        let elements = self.memory_elements();
        let (is_inside, expected) = (layout.end() <= elements, "a layout inside the memory");
        let (shape, strides, offset) = (&layout.shape, &layout.strides, layout.offset);
        let got = format_args!(
            "{shape:?} with strides {strides:?} from {offset} on in {elements} elements"
        );
        require(name, is_inside, expected, got)?;
        let layout = layout.clone();
        let seen = match self.value().view() {
            Some(view) => {
                let value = Value::ready(self.dtype(), self.value().pin(), view.seen_as(layout));
                Self::of(value, None)
            }
            None => {
                let memory = Self::of(self.value().root(), None).ravel()?;
                Self::apply(name, AsStrided { layout }, &[&memory])?
            }
        };
        Ok(seen.viewing(self))
    }

    /// Windows of `size` indices of `dim`, `step` apart. `dim` counts the windows, and a new last dimension holds their
    /// elements. A view.
    ///
    /// # Errors
    /// Fails if the dimension does not exist, for windows larger than it, or for a step of 0.
    pub fn unfold(&self, dim: impl Integer, size: usize, step: usize) -> RusTorchResult<Self> {
        const NAME: &str = "unfold";
        let dim = self.wrap_dim(NAME, dim)?;
        let total = self.shape().get(dim).copied().unwrap_or(1);
        let expected = format_args!("windows of at most {total} indices, and a step of at least 1");
        let got = format_args!("{size}, {step} apart");
        require(NAME, size <= total && step > 0, expected, got)?;
        if self.rank() == 0 {
            return self.atleast_1d()?.narrow(0, 0, size);
        }
        self.restrided(NAME, |layout| {
            let windows = (total - size) / step + 1;
            // A longer step leaves the first window alone just the same.
            let mut out = layout.slice(dim, 0, windows, step.min(total.max(1)));
            out.shape.to_mut().push(size);
            out.strides.push(layout.strides[dim]);
            out
        })
    }

    /// The elements in row-major order without gaps: a copy if they are not contiguous.
    ///
    /// # Errors
    /// Never fails: a block format is always contiguous.
    pub fn contiguous(&self) -> RusTorchResult<Self> {
        match self.is_contiguous() {
            false => Self::apply("contiguous", Contiguous, &[self]),
            true => Ok(self.clone()),
        }
    }

    /// The same elements in their own memory: PyTorch's `clone`. Gradients go through it. Rust's
    /// [`clone`](Clone::clone) is another handle on the same memory, as `y = x` is in PyTorch.
    ///
    /// ```
    /// # use rustorch_tensor::{RusTorchResult, tensor};
    /// # fn main() -> RusTorchResult<()> {
    /// let mut x = tensor![1.0, 2.0];
    /// let (copy, same) = (x.copy()?, x.clone());
    /// x.add_(1)?;
    /// assert_eq!(copy.to_vec::<f32>()?, [1.0, 2.0]);
    /// assert_eq!(same.to_vec::<f32>()?, [2.0, 3.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails for a block format.
    #[doc(alias = "clone")]
    pub fn copy(&self) -> RusTorchResult<Self> {
        Self::apply("copy", Contiguous, &[self])
    }
}
