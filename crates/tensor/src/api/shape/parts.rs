//! Parts of a tensor along its dimensions: slices, single indices, splits.

use rustorch_ir::OpError;
use rustorch_ir::ops::{Reshape, Slice};
use rustorch_macros::track_calls;

use crate::Tensor;
use crate::args::dims::{Integer, IntoParts, IntoShape, OptionalDim, Parts};
use crate::error::{RusTorchResult, require, with_room};

/// The parts of a dimension for [`Tensor::tensor_split`] and its relatives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Sections {
    /// This many parts.
    Count(usize),
    /// Parts that begin at each of these indices; negative ones count from the end.
    At(Vec<isize>),
}

impl From<usize> for Sections {
    fn from(count: usize) -> Self {
        Self::Count(count)
    }
}

impl<const N: usize> From<[isize; N]> for Sections {
    fn from(at: [isize; N]) -> Self {
        Self::At(at.to_vec())
    }
}

impl From<&[isize]> for Sections {
    fn from(at: &[isize]) -> Self {
        Self::At(at.to_vec())
    }
}

/// A Python index of a range's bound in a dimension of `size`: negative ones count from the end,
/// and larger ones are cut.
pub(crate) fn clip(index: isize, size: usize) -> usize {
    match index {
        ..0 => size.saturating_sub(index.unsigned_abs()),
        _ => size.min(index.unsigned_abs()),
    }
}

/// Parts that one call returns.
fn several(parts: Vec<Tensor>) -> Vec<Tensor> {
    parts.into_iter().map(Tensor::one_of_several).collect()
}

#[track_calls]
impl Tensor {
    /// Every `step`-th index of `dim` from `start` to `end`, exclusive, as Python's
    /// `start:end:step`. Negative indices count from the end, and too large ones are clamped. `None` is
    /// the beginning or the end.
    ///
    /// # Errors
    /// Fails if the dimension does not exist, or if `step` is 0.
    pub fn slice(
        &self,
        dim: impl Integer,
        start: impl OptionalDim,
        end: impl OptionalDim,
        step: usize,
    ) -> RusTorchResult<Self> {
        let dim = self.dim("slice", dim)?;
        let size = self.shape()[dim];
        let start = clip(start.to_dim().unwrap_or(0), size);
        let op = Slice {
            dim,
            start,
            end: clip(end.to_dim().unwrap_or(isize::MAX), size).max(start),
            // A longer step skips everything but the first index just the same.
            step: step.min(size.max(1)),
        };
        Self::apply("slice", op, &[self])
    }

    /// `length` indices of `dim` from `start` on.
    ///
    /// # Errors
    /// Fails if the dimension does not exist, or if the range leaves it.
    pub fn narrow(&self, dim: impl Integer, start: usize, length: usize) -> RusTorchResult<Self> {
        let dim = self.dim("narrow", dim)?;
        let size = self.shape()[dim];
        let end = start.checked_add(length).filter(|&end| end <= size);
        let Some(end) = end else {
            let got = format_args!("{length} from {start} on");
            return Err(OpError::new("narrow", format!("a part of {size} indices"), got).into());
        };
        self.ranged("narrow", dim, start, end)
    }

    /// `start..end` of `dim`, which has been checked.
    fn ranged(
        &self,
        name: &'static str,
        dim: usize,
        start: usize,
        end: usize,
    ) -> RusTorchResult<Self> {
        let step = 1;
        let op = Slice {
            dim,
            start,
            end,
            step,
        };
        Self::apply(name, op, &[self])
    }

    /// [`Tensor::narrow`] from an index that is data: one `i64` or `i32`, read at evaluation. A
    /// copy, although PyTorch returns a view. Writing to it is an error while this tensor has a
    /// handle.
    ///
    /// # Errors
    /// Fails if the dimension does not exist, or for an unsupported start. Evaluation fails for a
    /// range that leaves the dimension.
    pub fn narrow_at(
        &self,
        dim: impl Integer,
        start: &Self,
        length: usize,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "narrow_at";
        let dim = self.dim(NAME, dim)?;
        let one = start.numel() == 1;
        require(NAME, one, "a start of one element", start.ty())?;
        let steps = Self::arange_with(0, length as i64, 1, start.dtype())?;
        let picked = self.picked(NAME, dim, &steps.add(&start.reshape([1])?)?)?;
        Ok(picked.in_place_of_view(self))
    }

    /// One index of `dim`, which is dropped; negative ones count from the end.
    ///
    /// # Errors
    /// Fails if the dimension or index does not exist.
    pub fn select(&self, dim: impl Integer, index: impl Integer) -> RusTorchResult<Self> {
        let dim = self.dim("select", dim)?;
        let start = self.one_index("select", dim, index.to_isize())?;
        let mut shape = self.ty().shape.clone();
        shape.to_mut().remove(dim);
        let one = self.ranged("select", dim, start, start + 1)?;
        Self::apply("select", Reshape { shape }, &[&one])
    }

    /// An index of `dim` that may be counted from the end.
    pub(crate) fn one_index(
        &self,
        name: &'static str,
        dim: usize,
        index: isize,
    ) -> RusTorchResult<usize> {
        let size = self.shape()[dim];
        let from_start = match index {
            ..0 => size.checked_sub(index.unsigned_abs()),
            _ => Some(index.unsigned_abs()),
        };
        let expected = || format!("an index of dimension {dim}, of size {size}");
        let found = from_start.filter(|&i| i < size);
        Ok(found.ok_or_else(|| OpError::new(name, expected(), index))?)
    }

    /// Each index of `dim` as a tensor without that dimension. While gradients are recorded, these views are not
    /// written over; [`Tensor::select`] makes one that is.
    ///
    /// # Errors
    /// Fails if the dimension does not exist.
    pub fn unbind(&self, dim: impl Integer) -> RusTorchResult<Vec<Self>> {
        let dim = self.dim("unbind", dim)?;
        (0..self.shape()[dim] as isize)
            .map(|index| Ok(self.select(dim as isize, index)?.one_of_several()))
            .collect()
    }

    /// Parts of `dim`: of one size, the last one may be smaller, or of a size for each. While gradients are recorded,
    /// these views are not written over; [`Tensor::narrow`] makes one that is.
    ///
    /// # Errors
    /// Fails if the dimension does not exist, or if the size is 0 and the dimension is not empty. A list
    /// has the errors of [`Tensor::split_with_sizes`].
    pub fn split(&self, sizes: impl IntoParts, dim: impl Integer) -> RusTorchResult<Vec<Self>> {
        match sizes.into_parts() {
            Parts::Equal(size) => Ok(several(self.unsafe_split(size, dim)?)),
            Parts::Each(sizes) => self.split_with_sizes(sizes, dim),
        }
    }

    /// [`Tensor::split`] into parts that may be written over where gradients are recorded.
    ///
    /// # Errors
    /// The same errors as [`Tensor::split`].
    pub fn unsafe_split(&self, size: usize, dim: impl Integer) -> RusTorchResult<Vec<Self>> {
        let dim = self.dim("split", dim)?;
        let total = self.shape()[dim];
        if total == 0 {
            return Ok(vec![self.clone()]);
        }
        require("split", size > 0, "parts of at least one index", size)?;
        (0..total)
            .step_by(size)
            .map(|start| self.ranged("split", dim, start, total.min(start.saturating_add(size))))
            .collect()
    }

    /// Parts of `dim` with these sizes, which add up to it: [`Tensor::split`] of a list.
    ///
    /// # Errors
    /// Fails if the dimension does not exist, or if the sizes do not add up to it.
    pub fn split_with_sizes(
        &self,
        sizes: impl IntoShape,
        dim: impl Integer,
    ) -> RusTorchResult<Vec<Self>> {
        self.unsafe_split_with_sizes(sizes, dim).map(several)
    }

    /// [`Tensor::split_with_sizes`] into parts that may be written over where gradients are recorded.
    ///
    /// # Errors
    /// The same errors as [`Tensor::split_with_sizes`].
    pub fn unsafe_split_with_sizes(
        &self,
        sizes: impl IntoShape,
        dim: impl Integer,
    ) -> RusTorchResult<Vec<Self>> {
        const NAME: &str = "split_with_sizes";
        let (dim, sizes) = (self.dim(NAME, dim)?, &sizes.into_shape()[..]);
        let total = self.shape()[dim];
        let sum = sizes.iter().try_fold(0usize, |sum, &n| sum.checked_add(n));
        let expected = format_args!("sizes that add up to {total}");
        require(
            NAME,
            sum == Some(total),
            expected,
            format_args!("{sizes:?}"),
        )?;
        let mut end = 0;
        let part = |&size: &usize| {
            end += size;
            self.ranged(NAME, dim, end - size, end)
        };
        sizes.iter().map(part).collect()
    }

    /// At most `chunks` parts of equal size along `dim`, as [`Tensor::split`] makes them; the last one may be smaller.
    /// An empty dimension becomes `chunks` empty parts.
    ///
    /// # Errors
    /// Fails if the dimension does not exist, or if `chunks` is 0.
    pub fn chunk(&self, chunks: usize, dim: impl Integer) -> RusTorchResult<Vec<Self>> {
        self.unsafe_chunk(chunks, dim).map(several)
    }

    /// [`Tensor::chunk`] into parts that may be written over where gradients are recorded.
    ///
    /// # Errors
    /// The same errors as [`Tensor::chunk`].
    pub fn unsafe_chunk(&self, chunks: usize, dim: impl Integer) -> RusTorchResult<Vec<Self>> {
        require("chunk", chunks > 0, "at least one chunk", chunks)?;
        match self.shape()[self.dim("chunk", dim)?] {
            0 => {
                let mut parts = with_room("chunk", chunks)?;
                parts.resize(chunks, self.clone());
                Ok(parts)
            }
            total => self.unsafe_split(total.div_ceil(chunks), dim),
        }
    }

    /// A number of parts of `dim`, or the parts between given indices, clamped to the dimension. If
    /// `dim` cannot be divided evenly, the first parts are one larger.
    ///
    /// # Errors
    /// Fails if the dimension does not exist, or for 0 parts.
    pub fn tensor_split(
        &self,
        sections: impl Into<Sections>,
        dim: impl Integer,
    ) -> RusTorchResult<Vec<Self>> {
        self.sections("tensor_split", &sections.into(), dim.to_isize())
    }

    fn sections(
        &self,
        name: &'static str,
        sections: &Sections,
        dim: isize,
    ) -> RusTorchResult<Vec<Self>> {
        let dim = self.dim(name, dim)?;
        let size = self.shape()[dim];
        let bounds: Vec<usize> = match sections {
            Sections::Count(count) => {
                require(name, *count > 0, "at least one part", count)?;
                let (each, more) = (size / count, size % count);
                let mut bounds = with_room(name, count.saturating_add(1))?;
                bounds.extend((0..=*count).map(|i| i * each + i.min(more)));
                bounds
            }
            Sections::At(indices) => {
                let inner = indices.iter().map(|&i| clip(i, size));
                [0].into_iter().chain(inner).chain([size]).collect()
            }
        };
        let part = |ends: &[usize]| self.ranged(name, dim, ends[0], ends[1].max(ends[0]));
        bounds.windows(2).map(part).collect()
    }

    /// [`Tensor::sections`] that a dimension is divided into evenly.
    fn even_sections(
        &self,
        name: &'static str,
        sections: &Sections,
        dim: isize,
    ) -> RusTorchResult<Vec<Self>> {
        if let &Sections::Count(count) = sections {
            let size = self.shape()[self.dim(name, dim)?];
            let even = count > 0 && size.is_multiple_of(count);
            let expected =
                format_args!("a number that divides the {size} indices of dimension {dim}");
            require(name, even, expected, count)?;
        }
        self.sections(name, sections, dim)
    }

    /// Parts from left to right, along dimension 1, or 0 for vectors. A number of parts has to
    /// divide it.
    ///
    /// # Errors
    /// Fails for rank 0, or if the parts do not divide the dimension.
    pub fn hsplit(&self, sections: impl Into<Sections>) -> RusTorchResult<Vec<Self>> {
        require("hsplit", self.rank() >= 1, "rank 1 or more", self.ty())?;
        let dim = isize::from(self.rank() > 1);
        self.even_sections("hsplit", &sections.into(), dim)
    }

    /// Parts from top to bottom, along dimension 0. A number of parts has to divide it.
    ///
    /// # Errors
    /// Fails for rank below 2, or if the parts do not divide the dimension.
    pub fn vsplit(&self, sections: impl Into<Sections>) -> RusTorchResult<Vec<Self>> {
        require("vsplit", self.rank() >= 2, "rank 2 or more", self.ty())?;
        self.even_sections("vsplit", &sections.into(), 0)
    }

    /// Parts in depth, along dimension 2. A number of parts has to divide it.
    ///
    /// # Errors
    /// Fails for rank below 3, or if the parts do not divide the dimension.
    pub fn dsplit(&self, sections: impl Into<Sections>) -> RusTorchResult<Vec<Self>> {
        require("dsplit", self.rank() >= 3, "rank 3 or more", self.ty())?;
        self.even_sections("dsplit", &sections.into(), 2)
    }
}
