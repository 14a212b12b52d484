//! Copies with a part replaced.

use rustorch_ir::DType;
use rustorch_ir::ops::{ScatterMode, Where};
use rustorch_macros::track_calls;

use crate::Tensor;
use crate::api::shape::parts::clip;
use crate::args::dims::{Integer, IntoShape};
use crate::error::{RusTorchResult, require};

#[track_calls]
impl Tensor {
    /// A copy with `source`, converted to this dtype, at `index` of `dim`. `source` lacks that
    /// dimension.
    ///
    /// # Errors
    /// Fails if the dimension or index does not exist, or for an unsupported source.
    pub fn select_scatter(
        &self,
        source: &Self,
        dim: impl Integer,
        index: impl Integer,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "select_scatter";
        let dim = self.dim(NAME, dim)?;
        let at = self.one_index(NAME, dim, index.to_isize())?;
        let mut shape = self.ty().shape.clone();
        shape.to_mut().remove(dim);
        let source = self.source(NAME, source, &shape)?;
        self.with_range(&source.unsqueeze(dim as isize)?, dim, at)
    }

    /// A copy with `source`, converted to this dtype, in a slice. `source` has the shape of [`Tensor::slice`] with the
    /// same arguments.
    ///
    /// # Errors
    /// Fails if the dimension does not exist, if `step` is 0, or for an unsupported source.
    pub fn slice_scatter(
        &self,
        source: &Self,
        dim: impl Integer,
        start: impl Integer,
        end: impl Integer,
        step: usize,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "slice_scatter";
        let dim = self.dim(NAME, dim)?;
        let size = self.shape()[dim];
        require(NAME, step > 0, "a step of at least 1", step)?;
        let start = clip(start.to_isize(), size);
        let count = clip(end.to_isize(), size)
            .saturating_sub(start)
            .div_ceil(step);
        let wanted = self.ty().shape.clone().with_dim(dim, count);
        let source = &self.source(NAME, source, &wanted)?;
        if step == 1 || count <= 1 {
            return self.with_range(source, dim, start);
        }
        // Each index looks whether it is in the slice, and where.
        let from_start = Self::arange_with(-(start as i64), (size - start) as i64, 1, DType::I64)?;
        let last = (count - 1) as i64;
        let place = from_start.floor_divide(step as i64)?.clamp(0, last)?;
        let is_inside = place.mul(step as i64)?.eq(&from_start)?;
        let spread = source.picked(NAME, dim, &place)?;
        let mask = is_inside.spread_along(dim, self.shape())?;
        Self::apply(NAME, Where, &[&mask, &spread, self])
    }

    /// The value for a place of this shape, in this dtype.
    pub(crate) fn source(
        &self,
        name: &'static str,
        source: &Self,
        shape: &[usize],
    ) -> RusTorchResult<Self> {
        let expected = format_args!("a source of shape {shape:?}");
        require(name, source.shape() == shape, expected, source.ty())?;
        source.cast(name, self.dtype())
    }

    /// A copy with `source` from index `start` of `dim` on.
    fn with_range(&self, source: &Self, dim: usize, start: usize) -> RusTorchResult<Self> {
        let (size, count) = (self.shape()[dim], source.shape()[dim]);
        let end = start + count;
        let dim = dim as isize;
        let parts = [
            (start > 0)
                .then(|| self.narrow(dim, 0, start))
                .transpose()?,
            (count > 0).then(|| source.clone()),
            (end < size)
                .then(|| self.narrow(dim, end, size - end))
                .transpose()?,
        ];
        let parts: Vec<&Self> = parts.iter().flatten().collect();
        match parts[..] {
            [] => Ok(self.clone()),
            _ => Self::cat(&parts, dim),
        }
    }

    /// A row-major copy in which [`Tensor::as_strided`] with the same arguments shows `source`.
    /// `source` has the shape `size` and is converted to this dtype.
    ///
    /// # Errors
    /// The same errors as [`Tensor::as_strided`]. Also fails for an unsupported source, or for a
    /// stride of 0, which would write an element several times.
    pub fn as_strided_scatter(
        &self,
        source: &Self,
        size: impl IntoShape,
        stride: impl IntoShape,
        offset: impl Into<Option<usize>>,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "as_strided_scatter";
        let (size, stride) = (&size.into_shape()[..], stride.into_shape());
        let is_apart = size
            .iter()
            .zip(&stride[..])
            .all(|(&n, &step)| n < 2 || step != 0);
        let expected = "strides other than 0, so that each place is written once";
        require(NAME, is_apart, expected, format!("{:?}", &stride[..]))?;
        let source = &self.source(NAME, source, size)?;
        let count = self.numel();
        let places = Self::arange_with(0, count as i64, 1, DType::I64)?;
        let shown = places.as_strided(size, stride, Some(offset.into().unwrap_or(0)))?;
        self.with_places(NAME, &shown, source)
    }

    /// A copy with `source` at places counted in row-major order.
    fn with_places(
        &self,
        name: &'static str,
        places: &Self,
        source: &Self,
    ) -> RusTorchResult<Self> {
        let (x, places, source) = (self.ravel()?, places.ravel()?, source.ravel()?);
        x.placed(name, 0, ScatterMode::Set, &places, &source)?
            .reshape(self.shape())
    }
}
