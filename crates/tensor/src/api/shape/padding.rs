//! The padding of a tensor.

use rustorch_ir::ops::{Contiguous, Pad};
use rustorch_ir::{DType, OpError, Scalar};
use rustorch_macros::track_calls;

use crate::Tensor;
use crate::args::dims::IntoSizes;
use crate::args::numbers::{as_element, require_inside};
use crate::error::{RusTorchResult, require};

/// The values of [`Tensor::pad`]'s padding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PadMode {
    /// One constant.
    Constant(Scalar),
    /// The tensor mirrored at its first and last element, which are not repeated.
    Reflect,
    /// The first and the last element, repeated.
    Replicate,
    /// The tensor continued from its other end.
    Circular,
}

macro_rules! constant_from {
    ($($number:ty),*) => {
        $(impl From<$number> for PadMode {
            fn from(value: $number) -> Self {
                Self::Constant(value.into())
            }
        })*
    };
}

constant_from!(Scalar, f64, f32, i64, i32, bool);

#[track_calls]
impl Tensor {
    /// Pads the last dimensions, as `torch.nn.functional.pad`. `padding` begins with the numbers of
    /// indices before and after the last dimension. Then come those of the dimension before it, and
    /// so on. Negative numbers remove indices. A number as the mode is the constant of all new
    /// elements.
    ///
    /// # Errors
    /// Fails for an odd number of entries, or more than two for each dimension. Also fails if more indices are removed
    /// than exist, or for a constant out of the dtype's range. The other modes also fail for a block format. `reflect`
    /// needs a padding smaller than the dimension, `circular` one that is not larger. `replicate` fails for an empty
    /// dimension.
    pub fn pad(&self, padding: impl IntoSizes, mode: impl Into<PadMode>) -> RusTorchResult<Self> {
        const NAME: &str = "pad";
        let sizes = padding.into_sizes();
        let padding = sizes.as_slice();
        let (pairs, rest) = padding.as_chunks::<2>();
        let fits = rest.is_empty() && pairs.len() <= self.rank();
        let expected = format_args!("a pair for each of the last of {} dimensions", self.rank());
        require(NAME, fits, expected, format_args!("{padding:?}"))?;
        let is_longer = pairs.iter().flatten().any(|&n| n > 0);
        let padded = match mode.into() {
            PadMode::Constant(value) => {
                return self.without_negative(pairs)?.padded(pairs, value);
            }
            // What is left after cutting goes around.
            PadMode::Circular => {
                let left = self.without_negative(pairs)?;
                (pairs.iter().enumerate()).try_fold(left, |x, (i, pair)| {
                    let pair = pair.map(|n| n.max(0));
                    x.continued(x.rank() - 1 - i, pair, PadMode::Circular)
                })
            }
            mode => (pairs.iter().enumerate()).try_fold(self.clone(), |x, (i, &pair)| {
                x.continued(x.rank() - 1 - i, pair, mode)
            }),
        }?;
        match is_longer {
            true => Ok(padded),
            // A tensor without some of its elements is still a view.
            false => Self::apply(NAME, Contiguous, &[&padded]),
        }
    }

    /// The tensor without the elements that negative paddings take away.
    fn without_negative(&self, pairs: &[[isize; 2]]) -> RusTorchResult<Self> {
        (pairs.iter().enumerate()).try_fold(self.clone(), |x, (i, pair)| {
            let dim = x.rank() - 1 - i;
            let [before, after] = pair.map(|n| n.min(0).unsigned_abs());
            if before == 0 && after == 0 {
                return Ok(x);
            }
            let size = x.shape()[dim];
            let left = size.checked_sub(before).and_then(|n| n.checked_sub(after));
            let expected = || format!("a padding that leaves some of the {size} indices");
            let got = || OpError::new("pad", expected(), format!("{pair:?}"));
            x.narrow(dim as isize, before, left.ok_or_else(got)?)
        })
    }

    fn padded(&self, pairs: &[[isize; 2]], value: Scalar) -> RusTorchResult<Self> {
        require_inside("pad", value, self.dtype())?;
        let kept = self.rank() - pairs.len();
        let around =
            |&[before, after]: &[isize; 2]| (before.max(0) as usize, after.max(0) as usize);
        let op = Pad {
            padding: (std::iter::repeat_n((0, 0), kept))
                .chain(pairs.iter().rev().map(around))
                .collect(),
            value: as_element(value, self.dtype()),
        };
        Self::apply("pad", op, &[self])
    }

    /// One dimension continued by its own elements.
    fn continued(
        &self,
        dim: usize,
        [before, after]: [isize; 2],
        mode: PadMode,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "pad";
        if before == 0 && after == 0 {
            return Ok(self.clone());
        }
        let size = self.shape()[dim] as isize;
        let (fits, expected) = match mode {
            PadMode::Reflect => (before.max(after) < size, "less than"),
            PadMode::Circular => (before.max(after) <= size, "at most"),
            _ => (size > 0, "of elements,"),
        };
        let end = size
            .checked_add(after)
            .filter(|&end| before.saturating_neg() <= end);
        let expected = format_args!("a padding {expected} {size} indices of dimension {dim}");
        let got = || OpError::new(NAME, expected, format!("{before} and {after}"));
        let Some(end) = end.filter(|_| fits) else {
            return Err(got().into());
        };
        let last = size as i64 - 1;
        let place = Self::arange_with((before as i64).saturating_neg(), end as i64, 1, DType::I64)?;
        let index = match mode {
            // At the end it comes back from the last element.
            PadMode::Reflect => place.abs()?.sub(last)?.abs()?.neg()?.add(last)?,
            PadMode::Circular => place.remainder(size as i64)?,
            _ => place.clamp(0, last)?,
        };
        self.picked(NAME, dim, &index)
    }
}
