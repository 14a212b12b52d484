//! Comparisons, and tests for kinds of numbers.

use rustorch_ir::ops::{CompareOp, Contiguous, UnaryOp};
use rustorch_ir::{DType, OpError};
use rustorch_macros::track_calls;

use crate::Tensor;
use crate::error::{RusTorchResult, require};

/// One method for each line: documentation, name, comparison.
macro_rules! compare_methods {
    ($($doc:literal $(#[$more:meta])* $name:ident = $op:ident;)*) => {
        #[rustorch_macros::track_calls]
        impl Tensor {
            $(#[doc = $doc]
            $(#[$more])*
            ///
            /// `other` is a tensor, which is broadcast and promoted, a number or a `bool`. The
            /// result is `bool`.
            ///
            /// # Errors
            /// Fails for shapes that do not broadcast, or for an ordering of complex numbers.
            pub fn $name(&self, other: impl crate::AsValue) -> RusTorchResult<Self> {
                self.compare(stringify!($name), CompareOp::$op, other.as_value()?)
            })*
        }
    };
}

compare_methods! {
    "`self == other`, for each element."
    eq = Eq;
    "`self != other`, for each element; true for NaN."
    #[doc(alias = "not_equal")]
    ne = Ne;
    "`self < other`, for each element."
    #[doc(alias = "less")]
    lt = Lt;
    "`self <= other`, for each element."
    #[doc(alias = "less_equal")]
    le = Le;
    "`self > other`, for each element."
    #[doc(alias = "greater")]
    gt = Gt;
    "`self >= other`, for each element."
    #[doc(alias = "greater_equal")]
    ge = Ge;
}

#[track_calls]
impl Tensor {
    /// The sign: −1, 0 or 1. It takes real numbers and booleans; NaN gives 0.
    ///
    /// # Errors
    /// Fails for a complex dtype or a block format.
    pub fn sign(&self) -> RusTorchResult<Self> {
        match self.dtype() {
            DType::Bool => Self::apply("sign", Contiguous, &[self]),
            _ => self.unary("sign", UnaryOp::Sign),
        }
    }

    /// Tests each element for NaN. The result is `bool`.
    ///
    /// # Errors
    /// Fails for a block format.
    pub fn isnan(&self) -> RusTorchResult<Self> {
        match self.dtype() {
            d if d.is_float() => self.unary("isnan", UnaryOp::IsNan),
            d if d.is_float8() => self.cast("isnan", DType::F32)?.isnan(),
            // A complex number with a NaN differs from itself too, and integers never do.
            _ => self.compare("isnan", CompareOp::Ne, self.into()),
        }
    }

    /// Tests each element for infinity. The result is `bool`.
    ///
    /// # Errors
    /// Fails for a block format.
    pub fn isinf(&self) -> RusTorchResult<Self> {
        match self.dtype() {
            d if d.is_float() => self.abs()?.eq(f64::INFINITY),
            d if d.is_float8() => self.cast("isinf", DType::F32)?.isinf(),
            d if d.is_complex() => self.real()?.isinf()?.logical_or(&self.imag()?.isinf()?),
            _ => self.zeros_like()?.cast("isinf", DType::Bool),
        }
    }

    /// Tests each element for being neither infinite nor NaN. The result is `bool`.
    ///
    /// # Errors
    /// Fails for a block format.
    pub fn isfinite(&self) -> RusTorchResult<Self> {
        match self.dtype() {
            d if d.is_float() => self.abs()?.lt(f64::INFINITY),
            d if d.is_float8() => self.cast("isfinite", DType::F32)?.isfinite(),
            d if d.is_complex() => self
                .real()?
                .isfinite()?
                .logical_and(&self.imag()?.isfinite()?),
            _ => self.ones_like()?.cast("isfinite", DType::Bool),
        }
    }

    /// Tests each element for +∞. The result is `bool`. Takes real numbers and booleans.
    ///
    /// # Errors
    /// Fails for a complex dtype or a block format.
    pub fn isposinf(&self) -> RusTorchResult<Self> {
        self.is_infinity("isposinf", f64::INFINITY)
    }

    /// Tests each element for −∞. The result is `bool`. Takes real numbers and booleans.
    ///
    /// # Errors
    /// Fails for a complex dtype or a block format.
    pub fn isneginf(&self) -> RusTorchResult<Self> {
        self.is_infinity("isneginf", f64::NEG_INFINITY)
    }

    fn is_infinity(&self, name: &'static str, infinity: f64) -> RusTorchResult<Self> {
        require(name, !self.dtype().is_complex(), "real numbers", self.ty())?;
        match self.dtype() {
            d if d.is_float() => self.eq(infinity),
            d if d.is_float8() => self.cast(name, DType::F32)?.eq(infinity),
            _ => self.isinf(),
        }
    }

    /// Tests each element for an imaginary part of 0. Result `bool`; true of real numbers.
    ///
    /// # Errors
    /// Fails for a block format.
    pub fn isreal(&self) -> RusTorchResult<Self> {
        match self.dtype().is_complex() {
            true => self.imag()?.eq(0),
            false => self.ones_like()?.cast("isreal", DType::Bool),
        }
    }

    /// Tests whether the sign bit of each element is set. The result is `bool`. Takes real numbers and booleans.
    ///
    /// # Errors
    /// Fails for a complex dtype or a block format.
    pub fn signbit(&self) -> RusTorchResult<Self> {
        match self.dtype() {
            d if d.is_float() => self.ones_like()?.copysign(self)?.lt(0),
            DType::Bool => self.zeros_like(),
            _ => self.lt(0),
        }
    }

    /// Tests each element for `|self - other| <= atol + rtol · |other|`. Equal infinities are close;
    /// NaN is close to nothing, or to NaN (`equal_nan`). PyTorch's defaults are 1e-5 and 1e-8.
    /// Result `bool`; shapes broadcast.
    ///
    /// # Errors
    /// Fails for different dtypes, shapes that do not broadcast, or negative tolerances.
    pub fn isclose(
        &self,
        other: &Self,
        rtol: f64,
        atol: f64,
        equal_nan: bool,
    ) -> RusTorchResult<Self> {
        self.near("isclose", other, [rtol, atol], equal_nan)
    }

    fn near(
        &self,
        name: &'static str,
        other: &Self,
        [rtol, atol]: [f64; 2],
        equal_nan: bool,
    ) -> RusTorchResult<Self> {
        if self.dtype() != other.dtype() {
            let got = format_args!("{} and {}", self.ty(), other.ty());
            return Err(OpError::new(name, "operands of one dtype", got).into());
        }
        let got = format_args!("{rtol} and {atol}");
        require(
            name,
            rtol >= 0.0 && atol >= 0.0,
            "tolerances from 0 on",
            got,
        )?;
        // In double precision, so that the bound itself is not rounded.
        let wide = |x: &Self| match x.dtype().is_complex() {
            true => x.cast(name, DType::Complex128),
            false => x.cast(name, DType::F64),
        };
        let (a, b) = (wide(self)?, wide(other)?);
        let length = b.abs()?;
        let within = a.sub(&b)?.abs()?.le(&length.mul(rtol)?.add(atol)?)?;
        let finite = length.ne(f64::INFINITY)?;
        let close = within.logical_and(&finite)?.logical_or(&a.eq(&b)?)?;
        match equal_nan {
            true => close.logical_or(&a.isnan()?.logical_and(&b.isnan()?)?),
            false => Ok(close),
        }
    }

    /// Returns whether all elements are [close](Tensor::isclose).
    ///
    /// # Errors
    /// The same errors as [`Tensor::isclose`]. Also fails if evaluation fails.
    pub fn allclose(&self, other: &Self, rtol: f64, atol: f64) -> RusTorchResult<bool> {
        self.near("allclose", other, [rtol, atol], false)?
            .all(None, false)?
            .to_scalar()
    }

    /// Returns whether shapes and all elements are equal, in the dtype that both promote to. NaN differs from
    /// itself.
    ///
    /// # Errors
    /// Fails for dtypes that do not promote, or if evaluation fails.
    pub fn equal(&self, other: &Self) -> RusTorchResult<bool> {
        match self.shape() == other.shape() {
            true => self.eq(other)?.all(None, false)?.to_scalar(),
            false => Ok(false),
        }
    }
}
