//! Scans: each element combined with those before it.

use std::f64::consts::PI;

use rustorch_ir::DType;
use rustorch_ir::ops::{Contiguous, Scan, ScanOp};
use rustorch_macros::track_calls;

use crate::Tensor;
use crate::args::dims::Integer;
use crate::error::{RusTorchResult, require};

/// One method for each line: documentation, name, scan.
macro_rules! scan_methods {
    ($($doc:literal $name:ident = $op:ident;)*) => {
        #[rustorch_macros::track_calls]
        impl Tensor {
            $(#[doc = $doc]
            ///
            /// # Errors
            /// Fails if the dimension does not exist, or for an unsupported dtype.
            pub fn $name(&self, dim: impl Integer) -> RusTorchResult<Self> {
                self.scan(stringify!($name), ScanOp::$op, dim.to_isize())
            })*
        }
    };
}

scan_methods! {
    "Cumulative sum along `dim`; an `i64` for integers and booleans. Takes numbers and booleans."
    cumsum = Sum;
    "Cumulative product along `dim`; an `i64` for integers and booleans. Takes numbers and booleans."
    cumprod = Prod;
}

#[track_calls]
impl Tensor {
    /// `ln Σ eˣ` of each element and those before it along `dim`. The results are floats and complex numbers. Imaginary
    /// parts are continued beyond −π to π, as in PyTorch. Each starts from the larger of the previous sum and the
    /// element.
    ///
    /// # Errors
    /// Fails if the dimension does not exist, or for an unsupported dtype.
    pub fn logcumsumexp(&self, dim: impl Integer) -> RusTorchResult<Self> {
        let dim = dim.to_isize();
        const NAME: &str = "logcumsumexp";
        if !self.dtype().is_complex() || self.numel() == 0 {
            return self.scan(NAME, ScanOp::LogSumExp, dim);
        }
        let dim = self.wrap_dim(NAME, dim)? as isize;
        if self.rank() == 0 {
            return Self::apply(NAME, Contiguous, &[self]);
        }
        let principal = self.summed_exponentials(dim)?;
        let phase = self.unwound(NAME, &principal, dim)?;
        Self::complex(&principal.real()?, &phase)
    }

    /// The running logarithms of sums, up to whole turns: sums of twice as many elements in each round,
    /// relative to the larger of the two. So no element is lost beside a much larger one after it.
    fn summed_exponentials(&self, dim: isize) -> RusTorchResult<Self> {
        let size = self.size(dim)?;
        let (mut sums, mut count) = (self.clone(), 1);
        while count < size {
            let before = sums.narrow(dim, 0, size - count)?;
            let after = sums.narrow(dim, count, size - count)?;
            let larger = before.real()?.maximum(&after.real()?)?.detach();
            let larger = larger.masked_fill(&larger.isinf()?, 0)?;
            let both = before
                .sub(&larger)?
                .exp()?
                .add(after.sub(&larger)?.exp()?)?;
            let both = both.log()?.add(&larger)?;
            sums = Self::cat(&[&sums.narrow(dim, 0, count)?, &both], dim)?;
            count *= 2;
        }
        Ok(sums)
    }

    /// The imaginary parts of running logarithms of sums, without jumps: each is as near as possible to that of
    /// the sum before, or of the element, if that is larger. `principal` has them from −π to π.
    fn unwound(&self, name: &'static str, principal: &Self, dim: isize) -> RusTorchResult<Self> {
        let turn = 2.0 * PI;
        let near = |x: &Self| x.sub(&x.div(turn)?.round()?.mul(turn)?);
        let size = self.size(dim)?;
        let (sums, phases) = (principal.real()?, principal.imag()?);
        let first = self
            .narrow(dim, 0, 1)?
            .real()?
            .full_like(f64::NEG_INFINITY)?;
        let before = Self::cat(&[&first, &sums.narrow(dim, 0, size - 1)?], dim)?;
        let begins = self.real()?.gt(&before)?.logical_or(&before.isneginf()?)?;
        let own = self.imag()?;
        let begun = own.add(&near(&phases.sub(&own)?)?)?;
        let steps = near(&phases.sub(&phases.roll([1], dim)?)?)?;
        let walked = steps.scan(name, ScanOp::Sum, dim)?;
        // Where the last one is that an element begins.
        let at =
            Self::where_(&begins, &self.positions(name, dim)?, 0)?.scan(name, ScanOp::Max, dim)?;
        let from = |x: &Self| x.gather(dim, &at);
        let rough = from(&begun)?.add(&walked.sub(&from(&walked)?)?)?;
        // Whole turns, so that rounding of the steps does not count.
        let turns = rough.sub(&phases)?.div(turn)?.round()?;
        phases.add(&turns.mul(turn)?)
    }

    fn scan(&self, name: &'static str, op: ScanOp, dim: isize) -> RusTorchResult<Self> {
        let [result] = self.along(|x| {
            let dim = x.dim(name, dim)?;
            Ok([Self::apply(name, Scan { op, dim }, &[x])?])
        })?;
        Ok(result)
    }

    /// The running maximum along `dim`, and its index (`i64`), the last of equal ones; NaN is the
    /// largest. Takes real numbers and booleans.
    ///
    /// # Errors
    /// Fails if the dimension does not exist, or for an unsupported dtype.
    pub fn cummax(&self, dim: impl Integer) -> RusTorchResult<(Self, Self)> {
        self.running_extreme("cummax", ScanOp::Max, dim.to_isize())
    }

    /// The running minimum along `dim`, and its index, otherwise like [`Tensor::cummax`] (NaN is
    /// the smallest).
    ///
    /// # Errors
    /// The same errors as [`Tensor::cummax`].
    pub fn cummin(&self, dim: impl Integer) -> RusTorchResult<(Self, Self)> {
        self.running_extreme("cummin", ScanOp::Min, dim.to_isize())
    }

    fn running_extreme(
        &self,
        name: &'static str,
        op: ScanOp,
        dim: isize,
    ) -> RusTorchResult<(Self, Self)> {
        let [values, indices] = self.along(|x| {
            let values = x.scan(name, op, dim)?;
            // Where an element is the extreme one, its index is the latest.
            let here = x.eq(&values)?.logical_or(&x.isnan()?)?;
            let indices = Self::where_(&here, &x.positions(name, dim)?, 0)?;
            let indices = indices.scan(name, ScanOp::Max, dim)?;
            Ok([values, indices])
        })?;
        Ok((values, indices))
    }

    /// The indices of `dim` (`i64`), of sizes that broadcast.
    pub(super) fn positions(&self, name: &'static str, dim: isize) -> RusTorchResult<Self> {
        let dim = self.dim(name, dim)?;
        let mut shape = vec![1; self.rank()];
        shape[dim] = self.shape()[dim];
        Self::arange_with(0, shape[dim] as i64, 1, DType::I64)?.reshape(shape)
    }

    /// The differences of neighbours along `dim`, taken `n` times. `prepend` and `append` are joined to `self` first,
    /// in `self`'s dtype. For booleans the result is whether they differ.
    ///
    /// # Errors
    /// Fails if the dimension does not exist, or for shapes or dtypes that do not fit.
    pub fn diff(
        &self,
        n: usize,
        dim: impl Integer,
        prepend: Option<&Self>,
        append: Option<&Self>,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "diff";
        require(NAME, self.rank() > 0, "at least one dimension", self.ty())?;
        let parts: Vec<&Self> = prepend.into_iter().chain([self]).chain(append).collect();
        let mut x = match parts.len() {
            1 => self.clone(),
            _ => Self::cat(&parts, dim)?,
        };
        if n == 0 {
            return Self::apply(NAME, Contiguous, &[self]);
        }
        let whole = x.shape()[x.dim(NAME, dim)?];
        for _ in 0..n.min(whole) {
            let (before, after) = x.neighbours(NAME, dim.to_isize())?;
            x = match x.dtype() {
                DType::Bool => after.logical_xor(&before)?,
                _ => after.sub(&before)?,
            };
        }
        Ok(x)
    }

    /// All elements along `dim` but the last, and all but the first.
    pub(super) fn neighbours(
        &self,
        name: &'static str,
        dim: isize,
    ) -> RusTorchResult<(Self, Self)> {
        let size = self.shape()[self.dim(name, dim)?];
        let shorter = |start| self.narrow(dim, start, size.saturating_sub(1));
        Ok((shorter(0)?, shorter(size.min(1))?))
    }

    /// The integral along `dim` by the trapezoidal rule, between points that are `dx` apart.
    ///
    /// # Errors
    /// Fails if the dimension does not exist, or for booleans.
    #[doc(alias = "trapz")]
    pub fn trapezoid(&self, dx: f64, dim: impl Integer) -> RusTorchResult<Self> {
        const NAME: &str = "trapezoid";
        let dim = dim.to_isize();
        require(NAME, self.dtype() != DType::Bool, "numbers", self.ty())?;
        if self.size(dim)? == 0 {
            return self.trapezoids(NAME, None, dx, dim)?.sum(dim, false);
        }
        // The sum is of wide integers, where neighbours of few bits would wrap.
        let ends = self.select(dim, 0)?.add(&self.select(dim, -1)?)?;
        self.sum(dim, false)?.sub(&ends.mul(0.5)?)?.mul(dx)
    }

    /// The integral along `dim` by the trapezoidal rule, between the points `x`: one for each index
    /// of `dim`, or a tensor that broadcasts.
    ///
    /// # Errors
    /// Fails if the dimension does not exist, for shapes that do not fit, or for booleans.
    pub fn trapezoid_at(&self, x: &Self, dim: impl Integer) -> RusTorchResult<Self> {
        self.trapezoids("trapezoid_at", Some(x), 1.0, dim.to_isize())?
            .sum(dim, false)
    }

    /// The cumulative integrals of [`Tensor::trapezoid`], from the second point on.
    ///
    /// # Errors
    /// The same errors as [`Tensor::trapezoid`].
    pub fn cumulative_trapezoid(&self, dx: f64, dim: impl Integer) -> RusTorchResult<Self> {
        let dim = dim.to_isize();
        self.trapezoids("cumulative_trapezoid", None, dx, dim)?
            .cumsum(dim)
    }

    /// The cumulative integrals of [`Tensor::trapezoid_at`], from the second point on.
    ///
    /// # Errors
    /// The same errors as [`Tensor::trapezoid_at`].
    pub fn cumulative_trapezoid_at(&self, x: &Self, dim: impl Integer) -> RusTorchResult<Self> {
        let dim = dim.to_isize();
        self.trapezoids("cumulative_trapezoid_at", Some(x), 1.0, dim)?
            .cumsum(dim)
    }

    /// The areas between neighbouring points.
    fn trapezoids(
        &self,
        name: &'static str,
        x: Option<&Self>,
        dx: f64,
        dim: isize,
    ) -> RusTorchResult<Self> {
        require(name, self.dtype() != DType::Bool, "numbers", self.ty())?;
        let (before, after) = self.neighbours(name, dim)?;
        let sum = before.add(&after)?;
        let Some(x) = x else {
            return sum.mul(dx / 2.0);
        };
        // One list of points serves all lines.
        let x = match x.rank() {
            1 => {
                let mut shape = vec![1; self.rank()];
                shape[self.dim(name, dim)?] = x.numel();
                x.reshape(shape)?
            }
            _ => x.clone(),
        };
        let (from, to) = x.neighbours(name, dim)?;
        sum.mul(&to.sub(&from)?)?.div(2.0)
    }
}
