//! Spread, medians, quantiles.

use rustorch_ir::ops::VarMean;
use rustorch_ir::{DType, Param};
use rustorch_macros::track_calls;

use crate::Tensor;
use crate::dims::Dims;
use crate::dims::{Integer, IntoDims, OptionalDim};
use crate::error::{RusTorchResult, require};

/// What [`Tensor::quantile`] gives between two elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interpolation {
    /// What lies as far between them as the quantile.
    Linear,
    /// The smaller.
    Lower,
    /// The larger.
    Higher,
    /// Their mean.
    Midpoint,
    /// The nearer; halves to the even position.
    Nearest,
}

#[track_calls]
impl Tensor {
    /// Variance `Σ|x - mean|² / max(0, n - correction)`: `correction` 1 for a sample's, 0 for a
    /// population's. Floats and complex numbers; result real.
    ///
    /// # Errors
    /// There are no such dimensions; another dtype.
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

    /// Standard deviation: the root of [`Tensor::var`].
    ///
    /// # Errors
    /// As [`Tensor::var`].
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
    /// As [`Tensor::var`].
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
    /// As [`Tensor::var`].
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
        let op = VarMean {
            dims: dims.resolve(name, self.rank())?,
            keepdim,
            correction: Param(correction),
            root,
        };
        let [spread, mean] = Self::apply_all(name, op, &[&x])?;
        Ok((spread, mean))
    }

    /// The median of all elements, the lower one of two; NaN where one is NaN, or where there are
    /// none. Elements that are equal to it share its gradient. Integers and floats.
    ///
    /// # Errors
    /// Another dtype; integers without elements.
    pub fn median(&self) -> RusTorchResult<Self> {
        self.median_of_all("median", false)
    }

    /// [`Tensor::median`] of what is not NaN.
    ///
    /// # Errors
    /// As [`Tensor::median`].
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

    /// The median along `dim`, the lower one of two, and its index (`i64`); NaN where one is NaN.
    /// Integers and floats.
    ///
    /// # Errors
    /// There is no such dimension, or no element; another dtype.
    pub fn median_dim(&self, dim: impl Integer, keepdim: bool) -> RusTorchResult<(Self, Self)> {
        self.median_along("median_dim", dim.to_isize(), keepdim, false)
    }

    /// [`Tensor::median_dim`] of what is not NaN; NaN where there is nothing else.
    ///
    /// # Errors
    /// As [`Tensor::median_dim`].
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
            let (values, indices) = x.sort(dim, false)?;
            let at = match x.dtype().is_float() {
                false => x.narrow(dim, 0, 1)?.zeros_like()?.cast(name, DType::I64)?,
                true => x.isnan()?.sum(dim, true)?,
            };
            // NaN are last.
            let numbers = at.rsub(size as i64)?;
            let middle = numbers
                .sub(1)?
                .clamp_min(0)?
                .div_mode(2, crate::RoundingMode::Floor)?;
            let at = match skips_nan {
                true => middle,
                false => Self::where_(&at.eq(0)?, &middle, &numbers)?,
            };
            let chosen = |x: Self| x.chosen(dim, &at, keepdim);
            Ok([chosen(values)?, chosen(indices)?])
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

    /// The element along `dim` that is there most often, the smallest one of several, and its last
    /// index (`i64`). Integers, floats and booleans.
    ///
    /// # Errors
    /// There is no such dimension, or no element; another dtype.
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

    /// The quantiles `q`, numbers from 0 to 1 of rank 0 or 1 and of `self`'s dtype, of the elements
    /// along `dim`, or of all (`None`). NaN where one is NaN. `f32` or `f64`; where `q` has a
    /// dimension, it is the result's first.
    ///
    /// # Errors
    /// There is no such dimension, or no element; shapes or dtypes other than these.
    pub fn quantile(
        &self,
        q: &Self,
        dim: impl OptionalDim,
        keepdim: bool,
        interpolation: Interpolation,
    ) -> RusTorchResult<Self> {
        self.quantiles("quantile", q, dim.to_dim(), keepdim, interpolation, false)
    }

    /// [`Tensor::quantile`] of what is not NaN; NaN where there is nothing else.
    ///
    /// # Errors
    /// As [`Tensor::quantile`].
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
        let last = nan
            .rsub(size as i64 - 1)?
            .clamp_min(0)?
            .cast(name, self.dtype())?;
        let rank = match skips_nan {
            true => last.mul(q)?,
            // NaN are last.
            false => {
                let whole = (size - 1) as f64;
                Self::where_(&nan.eq(0)?, &last.mul(q)?, whole)?
            }
        };
        // A quantile that is no number is outside, as are others.
        let rank = Self::where_(&rank.isnan()?, size as f64, &rank)?;
        let rank = match interpolation {
            Interpolation::Lower => rank.floor()?,
            Interpolation::Higher => rank.ceil()?,
            Interpolation::Nearest => rank.round()?,
            Interpolation::Linear | Interpolation::Midpoint => rank,
        };
        let at = |rank: &Self| sorted.gather(-1, &rank.cast(name, DType::I64)?);
        let below = rank.floor()?;
        let low = at(&below)?;
        match interpolation {
            Interpolation::Linear => low.lerp(&at(&rank.ceil()?)?, &rank.sub(&below)?),
            Interpolation::Midpoint => low.lerp(&at(&rank.ceil()?)?, 0.5),
            _ => Ok(low),
        }
    }
}
