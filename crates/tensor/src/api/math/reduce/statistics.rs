//! Variance, medians, quantiles.

use rustorch_ir::ops::VarMean;
use rustorch_ir::{DType, Param, Scalar};
use rustorch_macros::track_calls;

use crate::Tensor;
use crate::args::dims::Dims;
use crate::args::dims::{Integer, IntoDims, OptionalDim};
use crate::error::{RusTorchResult, require};
use crate::warnings::warn_once;

/// The value of [`Tensor::quantile`] if it falls between two elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interpolation {
    /// Linear interpolation.
    Linear,
    /// The smaller.
    Lower,
    /// The larger.
    Higher,
    /// Their mean.
    Midpoint,
    /// The nearer one; ties go to the even position.
    Nearest,
}

#[track_calls]
impl Tensor {
    /// Variance `Σ|x - mean|² / max(0, n - correction)`. `correction` is 1 for a sample, 0 for a
    /// population. Takes floats and complex numbers; the result is real.
    ///
    /// # Errors
    /// Fails if a dimension does not exist, or for an unsupported dtype.
    pub fn var(
        &self,
        dims: impl IntoDims,
        correction: impl Into<f64>,
        keepdim: bool,
    ) -> RusTorchResult<Self> {
        let dims = dims.into_dims();
        let (var, _) = self.moments("var", &dims, correction.into(), keepdim, false)?;
        var.cast("var", self.dtype().real())
    }

    /// Standard deviation: the square root of [`Tensor::var`].
    ///
    /// # Errors
    /// The same errors as [`Tensor::var`].
    pub fn std(
        &self,
        dims: impl IntoDims,
        correction: impl Into<f64>,
        keepdim: bool,
    ) -> RusTorchResult<Self> {
        let dims = dims.into_dims();
        let (std, _) = self.moments("std", &dims, correction.into(), keepdim, true)?;
        std.cast("std", self.dtype().real())
    }

    /// [`Tensor::var`] and [`Tensor::mean`].
    ///
    /// # Errors
    /// The same errors as [`Tensor::var`].
    pub fn var_mean(
        &self,
        dims: impl IntoDims,
        correction: impl Into<f64>,
        keepdim: bool,
    ) -> RusTorchResult<(Self, Self)> {
        const NAME: &str = "var_mean";
        let dims = dims.into_dims();
        let (var, mean) = self.moments(NAME, &dims, correction.into(), keepdim, false)?;
        let dtype = self.dtype();
        Ok((var.cast(NAME, dtype.real())?, mean.cast(NAME, dtype)?))
    }

    /// [`Tensor::std`] and [`Tensor::mean`].
    ///
    /// # Errors
    /// The same errors as [`Tensor::var`].
    pub fn std_mean(
        &self,
        dims: impl IntoDims,
        correction: impl Into<f64>,
        keepdim: bool,
    ) -> RusTorchResult<(Self, Self)> {
        const NAME: &str = "std_mean";
        let dims = dims.into_dims();
        let (std, mean) = self.moments(NAME, &dims, correction.into(), keepdim, true)?;
        let dtype = self.dtype();
        Ok((std.cast(NAME, dtype.real())?, mean.cast(NAME, dtype)?))
    }

    /// Variance, or its root, and mean, in at least single precision.
    fn moments(
        &self,
        name: &'static str,
        dims: &Dims,
        correction: f64,
        keepdim: bool,
        root: bool,
    ) -> RusTorchResult<(Self, Self)> {
        let x = self.wide(name)?;
        if x.dtype().is_complex() {
            let part = |x: Self| x.moments(name, dims, correction, keepdim, root);
            let ((re, re_mean), (im, im_mean)) = (part(x.real()?)?, part(x.imag()?)?);
            let spread = match root {
                // A length, which does not overflow where its square does.
                true => Self::complex(&re, &im)?.abs()?,
                false => re.add(&im)?,
            };
            return Ok((spread, Self::complex(&re_mean, &im_mean)?));
        }
        let dims = dims.resolve(name, self.rank())?;
        let count: usize = dims.iter().map(|&dim| self.shape()[dim]).product();
        if correction >= count as f64 {
            warn_once(
                name,
                format_args!(
                    "the correction {correction} is at least the number of elements, {count}: the \
                     result is NaN or infinite"
                ),
            );
        }
        let op = VarMean {
            dims,
            keepdim,
            correction: Param(correction),
            root,
        };
        let [spread, mean] = Self::apply_all(name, op, &[&x])?;
        Ok((spread, mean))
    }

    /// The median of all elements, the lower one of two; NaN if one is NaN, or if there are none.
    /// Elements equal to it share its gradient. Takes integers and floats.
    ///
    /// # Errors
    /// Fails for an unsupported dtype, or integers without elements.
    pub fn median(&self) -> RusTorchResult<Self> {
        self.median_of_all("median", false)
    }

    /// [`Tensor::median`] that ignores NaN.
    ///
    /// # Errors
    /// The same errors as [`Tensor::median`].
    pub fn nanmedian(&self) -> RusTorchResult<Self> {
        self.median_of_all("nanmedian", true)
    }

    fn median_of_all(&self, name: &'static str, skips_nan: bool) -> RusTorchResult<Self> {
        if self.numel() == 0 && self.dtype().is_float() {
            return Self::scalar(f64::NAN, self.dtype());
        }
        let x = self.reshape([-1])?;
        let (median, _) = x.detach().median_along(name, 0, false, skips_nan)?;
        if !x.requires_grad() {
            return Ok(median);
        }
        // All that are equal share the gradient.
        let are_none = x.isnan()?.logical_and(&median.isnan()?)?;
        let are_equal = x.eq(&median)?.logical_or(&are_none)?;
        let count = are_equal.sum(None, false)?.cast(name, x.dtype())?;
        let mean = Self::where_(&are_equal, &x, 0.0)?
            .sum(None, false)?
            .div(&count)?;
        Ok(median.with_gradient_of(&mean))
    }

    /// The median along `dim`, the lower one of two, and its index (`i64`); NaN if one is NaN.
    /// Takes integers and floats.
    ///
    /// # Errors
    /// Fails if the dimension does not exist or is empty, or for an unsupported dtype.
    pub fn median_dim(&self, dim: impl Integer, keepdim: bool) -> RusTorchResult<(Self, Self)> {
        self.median_along("median_dim", dim.to_isize(), keepdim, false)
    }

    /// [`Tensor::median_dim`] that ignores NaN; NaN if all elements are.
    ///
    /// # Errors
    /// The same errors as [`Tensor::median_dim`].
    pub fn nanmedian_dim(&self, dim: impl Integer, keepdim: bool) -> RusTorchResult<(Self, Self)> {
        self.median_along("nanmedian_dim", dim.to_isize(), keepdim, true)
    }

    fn median_along(
        &self,
        name: &'static str,
        dim: isize,
        keepdim: bool,
        skips_nan: bool,
    ) -> RusTorchResult<(Self, Self)> {
        let [values, indices] = self.along(|x| {
            let d = x.dim(name, dim)?;
            let size = x.shape()[d];
            require(
                name,
                size > 0,
                "at least one element to choose from",
                x.ty(),
            )?;
            let middle = (size - 1) / 2;
            if !x.dtype().is_float() {
                let mut shape = x.shape().to_vec();
                shape[d] = 1;
                let place = Self::full(&shape[..], middle, DType::I64)?;
                return x.in_order(name, d, middle + 1, &place, keepdim);
            }
            // NaN are last.
            let numbers = x.isnan()?.sum(dim, true)?.rsub(size as i64)?;
            let halfway = numbers
                .sub(1)?
                .clamp_min(0)?
                .div_mode(2, crate::RoundingMode::Floor)?;
            let (k, places) = match skips_nan {
                true => (middle + 1, halfway),
                false => {
                    let has_nan = numbers.lt(size as i64)?;
                    (size, Self::where_(&has_nan, &numbers, &halfway)?)
                }
            };
            x.in_order(name, d, k, &places, keepdim)
        })?;
        Ok((values, indices))
    }

    /// One element of each line along `dim`, where `at`, of size 1 there, says.
    fn chosen(&self, dim: isize, at: &Self, keepdim: bool) -> RusTorchResult<Self> {
        let x = self.gather(dim, at)?;
        match keepdim {
            true => Ok(x),
            false => x.squeeze(dim),
        }
    }

    /// The most frequent element along `dim`, the smallest of several, and its last index (`i64`).
    /// Takes integers, floats and booleans.
    ///
    /// # Errors
    /// Fails if the dimension does not exist or is empty, or for an unsupported dtype.
    pub fn mode(&self, dim: impl Integer, keepdim: bool) -> RusTorchResult<(Self, Self)> {
        let dim = dim.to_isize();
        const NAME: &str = "mode";
        let [values, indices] = self.along(|x| {
            let size = x.shape()[x.dim(NAME, dim)?];
            require(
                NAME,
                size > 0,
                "at least one element to choose from",
                x.ty(),
            )?;
            let (values, indices) = x.sort(dim, false)?;
            let at = x.positions(NAME, dim)?;
            // Where runs of equal elements begin, and how long they are up to each.
            let first = values
                .narrow(dim, 0, 1)?
                .ones_like()?
                .cast(NAME, DType::Bool)?;
            let (before, after) = values.neighbours(NAME, dim)?;
            let begins = Self::cat(&[&first, &after.ne(&before)?], dim)?;
            let (begin, _) = Self::where_(&begins, &at, 0)?.cummax(dim)?;
            let (_, best) = at.sub(&begin)?.max_dim(dim, true)?;
            let chosen = |x: Self| x.chosen(dim, &best, keepdim);
            Ok([chosen(values)?, chosen(indices)?])
        })?;
        Ok((values, indices))
    }

    /// The quantiles `q` of the elements along `dim`, or of all (`None`). `q` are numbers from 0 to 1 of rank 0
    /// or 1 and of `self`'s dtype. NaN if one element is NaN. They are `f32` or `f64`. If `q` has a dimension,
    /// it is the result's first.
    ///
    /// # Errors
    /// Fails if the dimension does not exist or is empty, or for unsupported shapes or dtypes.
    pub fn quantile(
        &self,
        q: &Self,
        dim: impl OptionalDim,
        keepdim: bool,
        interpolation: Interpolation,
    ) -> RusTorchResult<Self> {
        self.quantiles("quantile", q, dim.to_dim(), keepdim, interpolation, false)
    }

    /// [`Tensor::quantile`] that ignores NaN; NaN if all elements are.
    ///
    /// # Errors
    /// The same errors as [`Tensor::quantile`].
    pub fn nanquantile(
        &self,
        q: &Self,
        dim: impl OptionalDim,
        keepdim: bool,
        interpolation: Interpolation,
    ) -> RusTorchResult<Self> {
        self.quantiles("nanquantile", q, dim.to_dim(), keepdim, interpolation, true)
    }

    fn quantiles(
        &self,
        name: &'static str,
        q: &Self,
        dim: Option<isize>,
        keepdim: bool,
        interpolation: Interpolation,
        skips_nan: bool,
    ) -> RusTorchResult<Self> {
        let dtype = self.dtype();
        let legal = matches!(dtype, DType::F32 | DType::F64);
        require(name, legal, "an f32 or f64 tensor", self.ty())?;
        require(
            name,
            q.dtype() == dtype,
            format_args!("a q of {dtype}"),
            q.ty(),
        )?;
        require(name, q.rank() < 2, "a q of rank 0 or 1", q.ty())?;
        let q = &q.probabilities(name)?;
        require(name, self.numel() > 0, "at least one element", self.ty())?;
        // The lines are last.
        let rank = self.rank();
        let (x, kept) = match dim {
            Some(dim) if rank > 0 => {
                let d = self.dim(name, dim)?;
                let order = (0..rank).filter(|&i| i != d).chain([d]);
                let order: Vec<isize> = order.map(|i| i as isize).collect();
                let mut kept = self.shape().to_vec();
                kept[d] = 1;
                (self.permute(order)?, kept)
            }
            dim => {
                dim.map(|dim| self.wrap_dim(name, dim)).transpose()?;
                (self.reshape([-1])?, vec![1; rank])
            }
        };
        let values = x.quantiles_of_lines(name, &q.reshape([-1])?, interpolation, skips_nan)?;
        // The quantiles come first.
        let lines = values.rank() as isize - 1;
        let values = values.permute([lines].into_iter().chain(0..lines).collect::<Vec<_>>())?;
        let count = (q.rank() == 1).then_some(q.numel());
        let rest = match keepdim {
            true => kept,
            false => x.shape()[..x.rank() - 1].to_vec(),
        };
        values.reshape(count.into_iter().chain(rest).collect::<Vec<usize>>())
    }

    /// Quantiles of the last dimension, in its place.
    fn quantiles_of_lines(
        &self,
        name: &'static str,
        q: &Self,
        interpolation: Interpolation,
        skips_nan: bool,
    ) -> RusTorchResult<Self> {
        let size = self.shape()[self.rank() - 1];
        let (sorted, _) = self.sort(-1, false)?;
        let nan = self.isnan()?.sum(-1, true)?;
        let last = size as i64 - 1;
        let (q, lasts) = match skips_nan {
            true => (q.clone(), nan.rsub(last)?.clamp_min(0)?),
            // NaN are last.
            false => {
                let lasts = Self::full([1], last, DType::I64)?;
                (Self::where_(&nan.eq(0)?, q, 1.0)?, lasts)
            }
        };
        let (below, rest, half) = q.ranks(name, &lasts, last)?;
        let next = |is_next: &Self| below.add(&is_next.cast(name, DType::I64)?);
        let at = |rank: &Self| sorted.gather(-1, rank);
        let above = || at(&next(&rest.gt(0)?)?);
        match interpolation {
            Interpolation::Lower => at(&below),
            Interpolation::Higher => above(),
            Interpolation::Nearest => {
                let ties = rest.eq(half)?.logical_and(&below.remainder(2)?.eq(1)?)?;
                at(&next(&rest.gt(half)?.logical_or(&ties)?)?)
            }
            Interpolation::Midpoint => at(&below)?.lerp(&above()?, 0.5),
            Interpolation::Linear => {
                let weight = rest.cast(name, self.dtype())?.mul(0.5 / half.as_f64())?;
                let slope = q.mul(&lasts.cast(name, self.dtype())?)?;
                at(&below)?.lerp(&above()?, weight.with_gradient_of(&slope))
            }
        }
    }

    /// The ranks of these quantiles of lines that end at `lasts`, at most `last`: the whole part, the rest, and half of
    /// what the rest is a part of.
    fn ranks(
        &self,
        name: &'static str,
        lasts: &Self,
        last: i64,
    ) -> RusTorchResult<(Self, Self, Scalar)> {
        let q = self.detach();
        if q.dtype() == DType::F64 {
            let rank = lasts.cast(name, DType::F64)?.mul(&q)?;
            let below = rank.floor()?;
            let rest = rank.sub(&below)?;
            return Ok((
                below.cast(name, DType::I64)?,
                rest,
                Scalar::Float(0.5.into()),
            ));
        }
        // In single precision a rank beside a whole number would be rounded to that, and not every device has more. So
        // ranks are integers, in units of the smallest part that leaves them room.
        let bits = i64::from(last.leading_zeros()) - 2;
        let unit = 1i64 << bits;
        let rank = q
            .mul(unit as f64)?
            .ceil()?
            .cast(name, DType::I64)?
            .mul(lasts)?;
        let below = rank.bitwise_right_shift(bits)?;
        let rest = rank.bitwise_and(unit - 1)?;
        Ok((below, rest, Scalar::Int(unit / 2)))
    }
}
