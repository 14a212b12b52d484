//! Reductions of segments of a dimension.

use rustorch_ir::DType;
use rustorch_macros::track_calls;

use crate::args::dims::Integer;
use crate::error::{RusTorchResult, require};
use crate::{ScatterReduce, Tensor};

/// Segments of slices along a dimension. The dimensions before it are those of the tensor.
#[derive(Clone, Copy)]
pub enum Segments<'a> {
    /// Number of slices of each segment, one segment after the other, `i64` or `i32`
    /// `[…, segments]`.
    Lengths(&'a Tensor),
    /// The start of each segment, and the end of the last one, increasing, `i64` or `i32` `[…, segments + 1]`.
    Offsets(&'a Tensor),
}

impl Segments<'_> {
    /// The bounds of the segments, `i64`.
    fn offsets(self, name: &'static str) -> RusTorchResult<Tensor> {
        match self {
            Self::Lengths(lengths) => {
                let ends = lengths.cast(name, DType::I64)?.cumsum(-1)?;
                ends.surrounded(name, &[(1, 0)], 0)
            }
            Self::Offsets(offsets) => offsets.cast(name, DType::I64),
        }
    }

    fn tensor(&self) -> &Tensor {
        match self {
            Self::Lengths(tensor) | Self::Offsets(tensor) => tensor,
        }
    }
}

#[track_calls]
impl Tensor {
    /// The reduction of each segment's slices along `axis`: `[…, segments, …]`. Each reduction
    /// begins with `initial`. By default an empty segment gives 0 as a sum, 1 as a product and NaN
    /// as a mean. Its maximum or minimum is an infinity. Slices outside all segments are left out.
    /// Takes floats.
    ///
    /// # Errors
    /// Fails for an unsupported dtype, or for unsupported segments.
    pub fn segment_reduce(
        &self,
        reduce: ScatterReduce,
        segments: Segments,
        axis: impl Integer,
        initial: Option<f64>,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "segment_reduce";
        self.require_float(NAME)?;
        let axis = self.dim(NAME, axis)?;
        let given = segments.tensor();
        let is_beside = given.rank() == axis + 1 && given.shape()[..axis] == self.shape()[..axis];
        let is_offsets = matches!(segments, Segments::Offsets(_));
        let is_there = given.shape().last().is_some_and(|&n| n > 0 || !is_offsets);
        let expected = format_args!("segments {:?} with a last dimension", &self.shape()[..axis]);
        require(NAME, is_beside && is_there, expected, given.ty())?;
        let offsets = segments.offsets(NAME)?;
        let (size, count) = (self.shape()[axis], offsets.shape()[axis] - 1);
        let neutral = match reduce {
            ScatterReduce::Sum | ScatterReduce::Mean => 0.0,
            ScatterReduce::Prod => 1.0,
            ScatterReduce::Amax => f64::NEG_INFINITY,
            ScatterReduce::Amin => f64::INFINITY,
        };
        let combined = match reduce {
            ScatterReduce::Mean => ScatterReduce::Sum,
            other => other,
        };
        let before = |n: usize| [&self.shape()[..axis], &[n]].concat();
        let along = vec![1; self.rank() - axis - 1];
        // The segment of each slice, by one more: those before the first and behind the last have
        // places of their own.
        let places = Self::arange_with(0, size as i64, 1, DType::I64)?.expand(&before(size)[..])?;
        let segment = offsets.searchsorted(&places, true, None)?;
        let segment = segment.reshape([&before(size)[..], &along].concat())?;
        let x = self.widened(NAME)?;
        let shape = [&before(count + 2)[..], &self.shape()[axis + 1..]].concat();
        let base = Self::full(shape, initial.unwrap_or(neutral), x.dtype())?;
        let index = segment.expand(self.shape())?;
        let all = base.scatter_reduce(axis as isize, &index, &x, combined, true)?;
        let result = all.narrow(axis as isize, 1, count)?;
        if reduce != ScatterReduce::Mean {
            return result.cast(NAME, self.dtype());
        }
        let lengths = offsets.diff(1, -1, None, None)?;
        let lengths = lengths.reshape([&before(count)[..], &along].concat())?;
        let means = result.div(&lengths.cast(NAME, x.dtype())?)?;
        let empty = Self::full([], initial.unwrap_or(f64::NAN), x.dtype())?;
        Self::where_(&lengths.eq(0)?, &empty, &means)?.cast(NAME, self.dtype())
    }
}
