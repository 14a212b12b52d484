//! Elements rearranged or repeated.

use rustorch_ir::ops::{Contiguous, Flip};
use rustorch_ir::{DType, OpError, Shape};
use rustorch_macros::track_calls;

use crate::Tensor;
use crate::args::dims::Dims;
use crate::args::dims::{IntoDims, IntoShape, OptionalDim};
use crate::error::{RusTorchResult, require, with_room};

/// Number of repetitions of each element.
#[derive(Clone, Copy)]
pub enum Repeats<'a> {
    /// The same number for all elements.
    Each(usize),
    /// A number for each, in an `i64` or `i32` tensor of rank 0 or 1.
    Listed(&'a Tensor),
}

impl From<usize> for Repeats<'_> {
    fn from(count: usize) -> Self {
        Self::Each(count)
    }
}

impl<'a> From<&'a Tensor> for Repeats<'a> {
    fn from(counts: &'a Tensor) -> Self {
        Self::Listed(counts)
    }
}

#[track_calls]
impl Tensor {
    /// Reverses the order of the named dimensions. It is a copy, as in PyTorch.
    ///
    /// # Errors
    /// Fails if a dimension does not exist.
    pub fn flip(&self, dims: impl IntoDims) -> RusTorchResult<Self> {
        self.flipped("flip", &dims.into_dims())
    }

    fn flipped(&self, name: &'static str, dims: &Dims) -> RusTorchResult<Self> {
        let dims = dims.resolve(name, self.rank())?;
        Self::apply(name, Flip { dims }, &[self])
    }

    /// Reverses dimension 1.
    ///
    /// # Errors
    /// Fails for rank below 2.
    pub fn fliplr(&self) -> RusTorchResult<Self> {
        require("fliplr", self.rank() >= 2, "rank 2 or more", self.ty())?;
        self.flipped("fliplr", &1.into_dims())
    }

    /// Reverses dimension 0.
    ///
    /// # Errors
    /// Fails for rank 0.
    pub fn flipud(&self) -> RusTorchResult<Self> {
        require("flipud", self.rank() >= 1, "rank 1 or more", self.ty())?;
        self.flipped("flipud", &0.into_dims())
    }

    /// Shifts elements by `shifts` indices along `dims`. Elements that leave a dimension reappear
    /// at its start. Without dimensions (`None`) one shift applies to all elements in row-major
    /// order.
    ///
    /// # Errors
    /// Fails if a dimension does not exist, or unless each has a shift.
    pub fn roll(&self, shifts: impl IntoDims, dims: impl IntoDims) -> RusTorchResult<Self> {
        const NAME: &str = "roll";
        let (shifts, dims) = (shifts.into_dims(), dims.into_dims());
        let shifts = shifts.given();
        if dims.are_all() && shifts.len() == 1 {
            let rolled = self.ravel()?.roll(shifts, 0)?;
            return rolled.reshape(self.shape());
        }
        // A dimension may be rolled several times.
        let dims = dims.each(NAME, self.rank())?;
        let got = format_args!("{} and {}", shifts.len(), dims.len());
        require(
            NAME,
            shifts.len() == dims.len(),
            "a shift for each dimension",
            got,
        )?;
        let mut rolls = shifts.iter().zip(dims);
        let rolled = rolls.try_fold(None, |rolled: Option<Self>, (&shift, dim)| {
            let x = rolled.as_ref().unwrap_or(self);
            let size = x.shape()[dim];
            match shift.checked_rem_euclid(size as isize) {
                None | Some(0) => Ok(rolled),
                Some(shift) => {
                    let (dim, cut) = (dim as isize, size - shift as usize);
                    let (front, back) = (x.narrow(dim, 0, cut)?, x.narrow(dim, cut, size - cut)?);
                    Self::cat(&[&back, &front], dim).map(Some)
                }
            }
        })?;
        rolled.map_or_else(|| Self::apply(NAME, Contiguous, &[self]), Ok)
    }

    /// Rotates a plane of two dimensions by `turns` right angles, from the first dimension towards
    /// the second.
    ///
    /// # Errors
    /// Fails if a dimension does not exist, or both are the same.
    pub fn rot90(&self, turns: isize, dims: [isize; 2]) -> RusTorchResult<Self> {
        const NAME: &str = "rot90";
        let [a, b] = [self.dim(NAME, dims[0])?, self.dim(NAME, dims[1])?];
        require(NAME, a != b, "two dimensions", format_args!("{dims:?}"))?;
        let flipped = |dims: &[usize]| {
            let dims: Vec<isize> = dims.iter().map(|&dim| dim as isize).collect();
            self.flipped(NAME, &dims[..].into_dims())
        };
        let swapped = |x: Self| x.transpose(a as isize, b as isize);
        match turns.rem_euclid(4) {
            1 => swapped(flipped(&[b])?),
            2 => flipped(&[a, b]),
            3 => swapped(flipped(&[a])?),
            _ => Self::apply(NAME, Contiguous, &[self]),
        }
    }

    /// Repeats the whole tensor `counts[i]` times along each dimension; extra counts add dimensions
    /// in front.
    ///
    /// # Errors
    /// Fails for fewer counts than dimensions, or for sizes that overflow.
    pub fn repeat(&self, counts: impl IntoShape) -> RusTorchResult<Self> {
        let counts = &counts.into_shape()[..];
        let expected = format_args!("at least {} counts", self.rank());
        let got = format_args!("{counts:?}");
        require("repeat", counts.len() >= self.rank(), expected, got)?;
        self.repeated("repeat", counts)
    }

    /// [`Tensor::repeat`] whose counts are for the last dimensions.
    ///
    /// # Errors
    /// Fails for sizes that overflow.
    pub fn tile(&self, counts: impl IntoShape) -> RusTorchResult<Self> {
        let counts = &counts.into_shape()[..];
        let ones = vec![1; self.rank().saturating_sub(counts.len())];
        self.repeated("tile", &[&ones[..], counts].concat())
    }

    /// The tensor as often as a count for each dimension, or more, says.
    fn repeated(&self, name: &'static str, counts: &[usize]) -> RusTorchResult<Self> {
        let lead = counts.len() - self.rank();
        let size = |d: usize| if d < lead { 1 } else { self.shape()[d - lead] };
        let sizes = || (0..counts.len()).map(size);
        let overflow = || OpError::new(name, "sizes that fit", "an overflow");
        let grown = counts
            .iter()
            .zip(sizes())
            .map(|(&n, size)| n.checked_mul(size));
        let whole: Shape = grown.collect::<Option<_>>().ok_or_else(overflow)?;
        let beside: Shape = sizes().flat_map(|size| [1, size]).collect();
        let pairs = counts.iter().zip(sizes());
        let expanded: Shape = pairs.flat_map(|(&n, size)| [n, size]).collect();
        let spread = self.reshape(&beside)?.expand(&expanded)?;
        // A copy, also where strides could show the result.
        Self::apply(name, Contiguous, &[&spread])?.reshape(&whole)
    }

    /// Repeats each index of `dim`, or each element in row-major order (`None`). A number gives the
    /// count, or a tensor has one for each. The shape depends on a tensor's values, so they are
    /// read at once.
    ///
    /// # Errors
    /// Fails if the dimension does not exist. Also fails for counts that are negative, of an
    /// unsupported dtype, or of another number than `dim` has indices. Also fails if evaluation
    /// fails.
    pub fn repeat_interleave<'a>(
        &self,
        repeats: impl Into<Repeats<'a>>,
        dim: impl OptionalDim,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "repeat_interleave";
        let Some(dim) = dim.to_dim() else {
            return self.ravel()?.repeat_interleave(repeats, 0);
        };
        let x = self.atleast_1d()?;
        let dim = x.dim(NAME, dim)?;
        let counts = match repeats.into() {
            Repeats::Each(count) => {
                let mut shape = x.ty().shape.clone();
                shape.to_mut().insert(dim + 1, count);
                let joined = x.shape()[dim].checked_mul(count);
                let overflow = || OpError::new(NAME, "a size that fits", "an overflow");
                let whole = x
                    .ty()
                    .shape
                    .clone()
                    .with_dim(dim, joined.ok_or_else(overflow)?);
                return x
                    .unsqueeze(dim as isize + 1)?
                    .expand(&shape)?
                    .reshape(&whole);
            }
            Repeats::Listed(counts) => counts,
        };
        let index = Self::repetition(NAME, counts, x.shape()[dim])?;
        x.picked(NAME, dim, &index)
    }

    /// The number of repeats of each of `size` indices, in order.
    fn repetition(name: &'static str, counts: &Self, size: usize) -> RusTorchResult<Self> {
        let legal = matches!(counts.dtype(), DType::I64 | DType::I32) && counts.rank() <= 1;
        require(
            name,
            legal,
            "counts of i64 or i32, of rank 0 or 1",
            counts.ty(),
        )?;
        let fits = counts.numel() == 1 || counts.numel() == size;
        require(
            name,
            fits,
            format_args!("{size} counts, or one"),
            counts.ty(),
        )?;
        let counts = counts
            .cast(name, DType::I64)?
            .expand([size])?
            .to_vec::<i64>()?;
        let negative = counts.iter().find(|&&count| count < 0);
        let expected = "counts that are not negative";
        require(name, negative.is_none(), expected, negative.unwrap_or(&0))?;
        let total = counts
            .iter()
            .map(|&n| n as usize)
            .fold(0, usize::saturating_add);
        let mut index = with_room(name, total)?;
        for (i, &count) in counts.iter().enumerate() {
            index.extend(std::iter::repeat_n(i as i64, count as usize));
        }
        let length = index.len();
        Self::from_vec(index, [length])
    }

    /// Channels moved to space: `[…, c · r², h, w]` becomes `[…, c, h · r, w · r]`.
    ///
    /// # Errors
    /// Fails for rank below 3, or channels that `r²` does not divide.
    pub fn pixel_shuffle(&self, r: usize) -> RusTorchResult<Self> {
        const NAME: &str = "pixel_shuffle";
        let expected = "a tensor [.., c * r^2, h, w]";
        let Some((lead, &[channels, h, w])) = self.shape().split_last_chunk() else {
            return Err(OpError::new(NAME, expected, self.ty()).into());
        };
        let square = r.checked_mul(r).filter(|&square| square > 0);
        let c = square.filter(|&square| channels.is_multiple_of(square));
        let got = || OpError::new(NAME, expected, format!("{} and r = {r}", self.ty()));
        let c = channels / c.ok_or_else(got)?;
        let n = lead.len() as isize;
        let order: Vec<isize> = (0..=n).chain([n + 3, n + 1, n + 4, n + 2]).collect();
        let cut = self.reshape(&[lead, &[c, r, r, h, w]].concat()[..])?;
        cut.permute(order)?
            .reshape(&[lead, &[c, h * r, w * r]].concat()[..])
    }

    /// Space moved to channels: `[…, c, h · r, w · r]` becomes `[…, c · r², h, w]`.
    ///
    /// # Errors
    /// Fails for rank below 3, or sizes that `r` does not divide.
    pub fn pixel_unshuffle(&self, r: usize) -> RusTorchResult<Self> {
        const NAME: &str = "pixel_unshuffle";
        let expected = "a tensor [.., c, h * r, w * r]";
        let Some((lead, &[c, height, width])) = self.shape().split_last_chunk() else {
            return Err(OpError::new(NAME, expected, self.ty()).into());
        };
        let fits = r > 0 && height.is_multiple_of(r) && width.is_multiple_of(r);
        require(
            NAME,
            fits,
            expected,
            format_args!("{} and r = {r}", self.ty()),
        )?;
        let (n, h, w) = (lead.len() as isize, height / r, width / r);
        let order: Vec<isize> = (0..=n).chain([n + 2, n + 4, n + 1, n + 3]).collect();
        let cut = self.reshape(&[lead, &[c, h, r, w, r]].concat()[..])?;
        cut.permute(order)?
            .reshape(&[lead, &[c * r * r, h, w]].concat()[..])
    }

    /// Shuffles the channels of `[n, g · k, …]`: one from each of `g` groups in turn.
    ///
    /// # Errors
    /// Fails for rank below 3, or channels that `groups` does not divide.
    pub fn channel_shuffle(&self, groups: usize) -> RusTorchResult<Self> {
        let channels = self.shape().get(1).copied().unwrap_or(0);
        let fits = self.rank() > 2 && groups > 0 && channels.is_multiple_of(groups);
        let got = format_args!("{} and {groups} groups", self.ty());
        require("channel_shuffle", fits, "a tensor [n, groups * k, ..]", got)?;
        let cut = self.unflatten(1, [groups, channels / groups])?;
        cut.transpose(1, 2)?.reshape(self.shape())
    }
}
