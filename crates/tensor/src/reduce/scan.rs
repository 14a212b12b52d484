//! Each element combined with those before it.

use rustorch_ir::DType;
use rustorch_ir::ops::{Scan, ScanOp};
use rustorch_macros::track_calls;

use crate::Tensor;
use crate::error::{RusTorchResult, require};

/// One method for each line: documentation, name, scan.
macro_rules! scan_methods {
    ($($doc:literal $name:ident = $op:ident;)*) => {
        #[rustorch_macros::track_calls]
        impl Tensor {
            $(#[doc = $doc]
            ///
            /// # Errors
            /// There is no such dimension; another dtype.
            pub fn $name(&self, dim: isize) -> RusTorchResult<Self> {
                self.scan(stringify!($name), ScanOp::$op, dim)
            })*
        }
    };
}

scan_methods! {
    "Running sum along `dim`; of integers and booleans an `i64`. Numbers and booleans."
    cumsum = Sum;
    "Running product along `dim`; of integers and booleans an `i64`. Numbers and booleans."
    cumprod = Prod;
}

#[track_calls]
impl Tensor {
    /// `ln Σ eˣ` of each element and those before it along `dim`. Floats and complex numbers.
    ///
    /// # Errors
    /// There is no such dimension; another dtype.
    pub fn logcumsumexp(&self, dim: isize) -> RusTorchResult<Self> {
        const NAME: &str = "logcumsumexp";
        if !self.dtype().is_complex() || self.numel() == 0 {
            return self.scan(NAME, ScanOp::LogSumExp, dim);
        }
        let max = self.real()?.max(dim, true)?;
        let max = max.masked_fill(&max.isinf()?, 0.0)?;
        let sums = self.sub(&max)?.exp()?.scan(NAME, ScanOp::Sum, dim)?;
        sums.log()?.add(&max)
    }

    fn scan(&self, name: &'static str, op: ScanOp, dim: isize) -> RusTorchResult<Self> {
        let [result] = self.along(|x| {
            let dim = x.dim(name, dim)?;
            Ok([Self::apply(name, Scan { op, dim }, &[x])?])
        })?;
        Ok(result)
    }

    /// The largest of each element and those before it along `dim`, and its index (`i64`): the last
    /// one of equals; NaN is the largest. Real numbers and booleans.
    ///
    /// # Errors
    /// There is no such dimension; another dtype.
    pub fn cummax(&self, dim: isize) -> RusTorchResult<(Self, Self)> {
        self.running_extreme("cummax", ScanOp::Max, dim)
    }

    /// The smallest of each element and those before it along `dim`, and its index: otherwise as
    /// [`Tensor::cummax`] (NaN is the smallest).
    ///
    /// # Errors
    /// As [`Tensor::cummax`].
    pub fn cummin(&self, dim: isize) -> RusTorchResult<(Self, Self)> {
        self.running_extreme("cummin", ScanOp::Min, dim)
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
        Self::arange(0, shape[dim] as i64, 1, DType::I64)?.reshape(shape)
    }

    /// The differences of neighbours along `dim`, `n` times over. `prepend` and `append` are put
    /// around `self` before, in `self`'s dtype. Of booleans: do they differ?
    ///
    /// # Errors
    /// There is no such dimension; shapes or dtypes that do not fit.
    pub fn diff(
        &self,
        n: usize,
        dim: isize,
        prepend: Option<&Self>,
        append: Option<&Self>,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "diff";
        require(NAME, self.rank() > 0, "at least one dimension", self.ty())?;
        if n == 0 {
            return Ok(self.clone());
        }
        let parts: Vec<&Self> = prepend.into_iter().chain([self]).chain(append).collect();
        let mut x = match parts.len() {
            1 => self.clone(),
            _ => Self::cat(&parts, dim)?,
        };
        let whole = x.shape()[x.dim(NAME, dim)?];
        for _ in 0..n.min(whole) {
            let (before, after) = x.neighbours(NAME, dim)?;
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
    /// There is no such dimension; booleans.
    pub fn trapezoid(&self, dx: f64, dim: isize) -> RusTorchResult<Self> {
        self.trapezoids("trapezoid", None, dx, dim)?.sum(dim, false)
    }

    /// The integral along `dim` by the trapezoidal rule, between the points `x`: one for each index
    /// of `dim`, or a tensor that broadcasts.
    ///
    /// # Errors
    /// There is no such dimension; shapes that do not fit; booleans.
    pub fn trapezoid_at(&self, x: &Self, dim: isize) -> RusTorchResult<Self> {
        self.trapezoids("trapezoid_at", Some(x), 1.0, dim)?
            .sum(dim, false)
    }

    /// The integrals up to each point of [`Tensor::trapezoid`] but the first.
    ///
    /// # Errors
    /// As [`Tensor::trapezoid`].
    pub fn cumulative_trapezoid(&self, dx: f64, dim: isize) -> RusTorchResult<Self> {
        self.trapezoids("cumulative_trapezoid", None, dx, dim)?
            .cumsum(dim)
    }

    /// The integrals up to each point of [`Tensor::trapezoid_at`] but the first.
    ///
    /// # Errors
    /// As [`Tensor::trapezoid_at`].
    pub fn cumulative_trapezoid_at(&self, x: &Self, dim: isize) -> RusTorchResult<Self> {
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
