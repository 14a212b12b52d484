//! Other looks at the same elements.
//!
//! A view of a tensor in memory shares its storage; nothing is copied.

use rustorch_ir::ops::{AsStrided, Contiguous, Expand, Permute, Reshape, Slice};
use rustorch_ir::{Layout, OpError, Shape};

use crate::Tensor;
use crate::dims::{Dims, Sizes};
use crate::error::{RusTorchResult, require};

impl Tensor {
    /// The same elements, in row-major order, in another shape. One size may be −1: it is
    /// what the others leave. A view where strides allow it, else a copy.
    ///
    /// # Errors
    /// Another number of elements.
    pub fn reshape(&self, shape: impl Into<Sizes>) -> RusTorchResult<Self> {
        self.reshaped("reshape", &shape.into())
    }

    /// [`Tensor::reshape`] without copying.
    ///
    /// # Errors
    /// Another number of elements; elements in memory that no strides show in this shape.
    pub fn view(&self, shape: impl Into<Sizes>) -> RusTorchResult<Self> {
        let view = self.reshaped("view", &shape.into())?;
        let copies = self.is_ready() && !view.is_ready();
        require(
            "view",
            !copies,
            "a shape that needs no copy (reshape makes one)",
            format!("{:?} for strides of {}", view.shape(), self.ty()),
        )?;
        Ok(view)
    }

    fn reshaped(&self, name: &'static str, sizes: &Sizes) -> RusTorchResult<Self> {
        let shape = sizes.infer(name, self.numel())?;
        Self::apply(name, Reshape { shape }, &[self])
    }

    /// The dimensions from `start` to `end`, both included, made one. A tensor of rank 0
    /// becomes `[1]`.
    ///
    /// # Errors
    /// There are no such dimensions, or `start` is behind `end`.
    pub fn flatten(&self, start: isize, end: isize) -> RusTorchResult<Self> {
        if self.rank() == 0 {
            return self.reshape([1]);
        }
        let (first, last) = (self.dim("flatten", start)?, self.dim("flatten", end)?);
        let got = format!("{start} and {end}");
        require("flatten", first <= last, "start <= end", got)?;
        let dims = self.shape();
        let joined = dims[first..=last].iter().product();
        let shape = [&dims[..first], &[joined], &dims[last + 1..]].concat();
        self.reshape(&shape[..])
    }

    /// Without those of the named dimensions (`None`: all) that have size 1.
    ///
    /// # Errors
    /// There are no such dimensions.
    pub fn squeeze(&self, dims: impl Into<Dims>) -> RusTorchResult<Self> {
        let dims = dims.into().resolve("squeeze", self.rank())?;
        let kept = |&(d, &size): &(usize, &usize)| size != 1 || !dims.contains(&d);
        let shape = (self.shape().iter().enumerate().filter(kept))
            .map(|(_, &size)| size)
            .collect();
        Self::apply("squeeze", Reshape { shape }, &[self])
    }

    /// With a dimension of size 1 put in at `dim`, between −rank − 1 and rank.
    ///
    /// # Errors
    /// There is no such place.
    pub fn unsqueeze(&self, dim: isize) -> RusTorchResult<Self> {
        let at = rustorch_ir::normalize_dim("unsqueeze", dim, self.rank() + 1)?;
        let mut shape = self.ty().shape.clone();
        shape.to_mut().insert(at, 1);
        Self::apply("unsqueeze", Reshape { shape }, &[self])
    }

    /// Dimensions in another order: dimension `i` of the result is `dims[i]` of this tensor.
    ///
    /// # Errors
    /// `dims` does not name each dimension once.
    pub fn permute(&self, dims: impl AsRef<[isize]>) -> RusTorchResult<Self> {
        let dims = (dims.as_ref().iter())
            .map(|&d| self.dim("permute", d))
            .collect::<RusTorchResult<_>>()?;
        Self::apply("permute", Permute { dims }, &[self])
    }

    /// Two dimensions exchanged.
    ///
    /// # Errors
    /// There are no such dimensions.
    pub fn transpose(&self, a: isize, b: isize) -> RusTorchResult<Self> {
        let (a, b) = (self.dim("transpose", a)?, self.dim("transpose", b)?);
        let mut dims: smallvec::SmallVec<[usize; 6]> = (0..self.rank()).collect();
        dims.swap(a, b);
        Self::apply("transpose", Permute { dims }, &[self])
    }

    /// A matrix transposed; tensors of rank 0 and 1 as they are.
    ///
    /// # Errors
    /// Rank above 2.
    pub fn t(&self) -> RusTorchResult<Self> {
        require("t", self.rank() <= 2, "rank 2 or less", self.ty())?;
        match self.rank() {
            2 => self.transpose(0, 1),
            _ => Ok(self.clone()),
        }
    }

    /// Every `step`-th index of `dim` from `start` up to but without `end`, as Python's
    /// `start:end:step`: negative indices count from the end, and what is outside is cut.
    ///
    /// # Errors
    /// There is no such dimension, or `step` is 0.
    pub fn slice(&self, dim: isize, start: isize, end: isize, step: usize) -> RusTorchResult<Self> {
        let dim = self.dim("slice", dim)?;
        let size = self.shape()[dim];
        let clip = |i: isize| match i {
            ..0 => size.saturating_sub(i.unsigned_abs()),
            _ => size.min(i.unsigned_abs()),
        };
        let start = clip(start);
        let op = Slice {
            dim,
            start,
            end: clip(end).max(start),
            // A longer step skips everything but the first index just the same.
            step: step.min(size.max(1)),
        };
        Self::apply("slice", op, &[self])
    }

    /// `length` indices of `dim` from `start` on.
    ///
    /// # Errors
    /// There is no such dimension, or the range leaves it.
    pub fn narrow(&self, dim: isize, start: usize, length: usize) -> RusTorchResult<Self> {
        let dim = self.dim("narrow", dim)?;
        let size = self.shape()[dim];
        let end = start.checked_add(length).filter(|&end| end <= size);
        let Some(end) = end else {
            let got = format!("{length} from {start} on");
            return Err(OpError::new("narrow", format!("a part of {size} indices"), got).into());
        };
        let op = Slice {
            dim,
            start,
            end,
            step: 1,
        };
        Self::apply("narrow", op, &[self])
    }

    /// One index of `dim`, which is dropped; negative ones count from the end.
    ///
    /// # Errors
    /// There is no such dimension or index.
    pub fn select(&self, dim: isize, index: isize) -> RusTorchResult<Self> {
        let dim = self.dim("select", dim)?;
        let size = self.shape()[dim];
        let start = match index {
            ..0 => size.checked_sub(index.unsigned_abs()),
            _ => Some(index.unsigned_abs()),
        };
        let Some(start) = start.filter(|&i| i < size) else {
            let expected = format!("an index of {size}");
            return Err(OpError::new("select", expected, index).into());
        };
        let mut shape = self.ty().shape.clone();
        shape.to_mut().remove(dim);
        let end = start + 1;
        let step = 1;
        let slice = Slice {
            dim,
            start,
            end,
            step,
        };
        let one = Self::apply("select", slice, &[self])?;
        Self::apply("select", Reshape { shape }, &[&one])
    }

    /// Broadcast to a shape, aligned at the last dimension; −1 keeps a size.
    ///
    /// # Errors
    /// A size that is neither 1 nor kept.
    pub fn expand(&self, shape: impl Into<Sizes>) -> RusTorchResult<Self> {
        let shape: Shape = shape.into().keep("expand", self.shape())?;
        Self::apply("expand", Expand { shape }, &[self])
    }

    /// Broadcast to a shape: [`Tensor::expand`] by its other name.
    ///
    /// # Errors
    /// A size that is neither 1 nor kept.
    pub fn broadcast_to(&self, shape: impl Into<Sizes>) -> RusTorchResult<Self> {
        self.expand(shape)
    }

    /// Elements of a contiguous tensor by their places in it: index `[i, j]` of the result is the
    /// element `offset + i · strides[0] + j · strides[1]`. Some may be seen often, others never.
    ///
    /// # Errors
    /// A tensor with gaps; another number of strides than of sizes; an element outside.
    pub fn as_strided(
        &self,
        shape: impl AsRef<[usize]>,
        strides: impl AsRef<[usize]>,
        offset: usize,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "as_strided";
        let (shape, strides) = (shape.as_ref(), strides.as_ref());
        let fits = shape.len() == strides.len();
        let got = format!("{strides:?} for {shape:?}");
        require(NAME, fits, "a stride for each size", got)?;
        let dense = self.is_contiguous();
        require(NAME, dense, "a contiguous tensor", self.ty())?;
        let layout = Layout {
            shape: shape.into(),
            strides: strides.into(),
            offset,
        };
        Self::apply(NAME, AsStrided { layout }, &[&self.reshape([-1])?])
    }

    /// Parts of `size` indices of `dim`; the last one may be smaller.
    ///
    /// # Errors
    /// There is no such dimension, or `size` is 0.
    pub fn split(&self, size: usize, dim: isize) -> RusTorchResult<Vec<Self>> {
        let total = self.shape()[self.dim("split", dim)?];
        require("split", size > 0, "parts of at least one index", size)?;
        if total == 0 {
            return Ok(vec![self.clone()]);
        }
        (0..total)
            .step_by(size)
            .map(|start| self.narrow(dim, start, size.min(total - start)))
            .collect()
    }

    /// At most `chunks` parts of equal size along `dim`; the last one may be smaller.
    ///
    /// # Errors
    /// There is no such dimension, or `chunks` is 0.
    pub fn chunk(&self, chunks: usize, dim: isize) -> RusTorchResult<Vec<Self>> {
        require("chunk", chunks > 0, "at least one chunk", chunks)?;
        let total = self.shape()[self.dim("chunk", dim)?];
        self.split(total.div_ceil(chunks).max(1), dim)
    }

    /// The elements in row-major order without gaps: a copy where they are not yet.
    ///
    /// # Errors
    /// None but of block formats, which always are.
    pub fn contiguous(&self) -> RusTorchResult<Self> {
        match self.is_contiguous() {
            false => Self::apply("contiguous", Contiguous, &[self]),
            true => Ok(self.clone()),
        }
    }
}
