//! Powers, exponential functions, logarithms, trigonometry, rounding.

use rustorch_ir::DType;
use rustorch_ir::ops::{BinaryOp, UnaryOp};
use rustorch_macros::track_calls;

use super::{binary_methods, composed_methods, float_of, unary_methods};
use crate::Tensor;
use crate::error::{RusTorchResult, require};
use crate::numbers::require_held;
use crate::promote::AsOperand;
use crate::promote::{Operand, result_dtype};

unary_methods! {
    "eˣ. Real (integers as `f32`) or complex."
    exp = function(UnaryOp::Exp);
    "2ˣ. Real (integers as `f32`) or complex."
    exp2 = function(UnaryOp::Exp2);
    "`eˣ - 1`, exact also near 0. Real (integers as `f32`) or complex."
    expm1 = function(UnaryOp::Expm1);
    "Natural logarithm. Real (integers as `f32`) or complex."
    log = function(UnaryOp::Log);
    "`ln(1 + x)`, exact also near 0. Real (integers as `f32`) or complex."
    log1p = function(UnaryOp::Log1p);
    "Logarithm to base 2. Real (integers as `f32`) or complex."
    log2 = function(UnaryOp::Log2);
    "Logarithm to base 10. Real (integers as `f32`) or complex."
    log10 = function(UnaryOp::Log10);
    "Square root. Real (integers as `f32`) or complex."
    sqrt = function(UnaryOp::Sqrt);
    "`1 / √x`. Real (integers as `f32`) or complex."
    rsqrt = function(UnaryOp::Rsqrt);
    "`1 / x`. Real (integers as `f32`) or complex."
    reciprocal = function(UnaryOp::Reciprocal);
    "Sine. Real (integers as `f32`) or complex."
    sin = function(UnaryOp::Sin);
    "Cosine. Real (integers as `f32`) or complex."
    cos = function(UnaryOp::Cos);
    "Tangent. Real (integers as `f32`) or complex."
    tan = function(UnaryOp::Tan);
    "Inverse sine. Real (integers as `f32`) or complex."
    asin = function(UnaryOp::Asin);
    "Inverse cosine. Real (integers as `f32`) or complex."
    acos = function(UnaryOp::Acos);
    "Inverse tangent. Real (integers as `f32`) or complex."
    atan = function(UnaryOp::Atan);
    "Hyperbolic sine. Real (integers as `f32`) or complex."
    sinh = function(UnaryOp::Sinh);
    "Hyperbolic cosine. Real (integers as `f32`) or complex."
    cosh = function(UnaryOp::Cosh);
    "Hyperbolic tangent. Real (integers as `f32`) or complex."
    tanh = function(UnaryOp::Tanh);
    "Inverse hyperbolic sine. Real (integers as `f32`) or complex."
    asinh = function(UnaryOp::Asinh);
    "Inverse hyperbolic cosine. Real (integers as `f32`) or complex."
    acosh = function(UnaryOp::Acosh);
    "Inverse hyperbolic tangent. Real (integers as `f32`) or complex."
    atanh = function(UnaryOp::Atanh);
    "Largest integer not above, as a float. Integers stay."
    floor = rounding(UnaryOp::Floor);
    "Smallest integer not below, as a float. Integers stay."
    ceil = rounding(UnaryOp::Ceil);
    "Nearest integer, halves to even, as a float. Integers stay."
    round = rounding(UnaryOp::Round);
    "Integer part, as a float. Integers stay."
    trunc = rounding(UnaryOp::Trunc);
    "Integer part, as a float: `trunc` by its other name. Integers stay."
    fix = rounding(UnaryOp::Trunc);
}

binary_methods! {
    "The angle of the point at `other` to the right and `self` up, from −π to π. Real numbers; \
     integers as `f32`."
    atan2 = Atan2, float_of;
    "`√(self² + other²)`. Floats."
    hypot = Hypot, |d| d;
}

composed_methods! {
    "An angle in degrees, in radians. Real numbers; integers as `f32`."
    deg2rad() = |x| x.mul(std::f64::consts::PI / 180.0);
    "An angle in radians, in degrees. Real numbers; integers as `f32`."
    rad2deg() = |x| x.mul(180.0 / std::f64::consts::PI);
    "`ln(x / (1 - x))`, of `x` brought to between `eps` and `1 - eps` if that is given. Real \
     numbers; integers as `f32`."
    logit(eps: Option<f64>) = |x| {
        let x = match eps {
            // The lower bound counts where it is above the upper one.
            Some(eps) => {
                let bounded = Tensor::where_(&x.gt(1.0 - eps)?, 1.0 - eps, x)?;
                Tensor::where_(&x.lt(eps)?, eps, &bounded)?
            }
            None => x.clone(),
        };
        let odds = x.div(&x.rsub(1)?)?.log()?;
        match x.requires_grad() {
            // The quotient has no slope at the ends, where that of the whole is infinite.
            true => Ok(odds.with_gradient_of(&x.log()?.sub(&x.neg()?.log1p()?)?)),
            false => Ok(odds),
        }
    };
}

#[track_calls]
impl Tensor {
    /// `sin(πx) / (πx)`, 1 at 0. Real (integers as `f32`) or complex.
    ///
    /// # Errors
    /// A block format.
    pub fn sinc(&self) -> RusTorchResult<Self> {
        self.composed_of_numbers("sinc", |x| x.mul(std::f64::consts::PI)?.sine_ratio())
    }

    /// `sin(x) / x`, 1 at 0; near 0 by its series, of which derivatives are as exact.
    pub(super) fn sine_ratio(&self) -> RusTorchResult<Self> {
        // The factors of the next power of x² over those of the last one.
        const STEPS: [f64; 6] = [
            2.0 * 3.0,
            4.0 * 5.0,
            6.0 * 7.0,
            8.0 * 9.0,
            10.0 * 11.0,
            12.0 * 13.0,
        ];
        let is_near = self.abs()?.lt(0.5)?;
        let near = Self::where_(&is_near, self, 0.0)?;
        let far = Self::where_(&is_near, 1.0, self)?;
        let square = near.square()?;
        let mut series = square.ones_like()?;
        for step in STEPS.into_iter().rev() {
            series = square.mul(&series)?.div(-step)?.add(1)?;
        }
        Self::where_(&is_near, &series, &far.sin()?.div(&far)?)
    }

    /// `ln(eᵃ + eᵇ)`, computed without overflow. Real (integers as `f32`) or complex.
    ///
    /// # Errors
    /// Shapes that do not broadcast; a block format.
    pub fn logaddexp(&self, other: impl AsOperand) -> RusTorchResult<Self> {
        self.composed_of_two("logaddexp", other.as_operand()?, |a, b| {
            let first = a.real()?.ge(&b.real()?)?;
            let large = Self::where_(&first, a, b)?;
            let small = Self::where_(&first, b, a)?;
            let sum = large.add(&small.sub(&large)?.exp()?.log1p()?)?;
            // Equal infinities have no difference.
            let infinite = a.eq(b)?.logical_and(&a.isinf()?)?;
            let sum = Self::where_(&infinite, a, &sum)?;
            Self::where_(&a.isnan()?, a, &sum)
        })
    }

    /// `log₂(2ᵃ + 2ᵇ)`, computed without overflow. Real (integers as `f32`) or complex.
    ///
    /// # Errors
    /// Shapes that do not broadcast; a block format.
    pub fn logaddexp2(&self, other: impl AsOperand) -> RusTorchResult<Self> {
        use std::f64::consts::{LN_2, LOG2_E};
        self.composed_of_two("logaddexp2", other.as_operand()?, |a, b| {
            a.mul(LN_2)?.logaddexp(&b.mul(LN_2)?)?.mul(LOG2_E)
        })
    }

    /// `self` to the power `other`. Numbers; of integers with a tensor of negative powers 0, or ±1
    /// where `self` is ±1.
    ///
    /// # Errors
    /// Integers to a power that is a negative integer, as in PyTorch; integers or halves to a number that
    /// their dtype does not hold; shapes that do not broadcast;
    /// booleans.
    pub fn pow(&self, other: impl AsOperand) -> RusTorchResult<Self> {
        const NAME: &str = "pow";
        let other = other.as_operand()?;
        let dtype = result_dtype(NAME, &[self.into(), other])?;
        if dtype.is_complex() {
            return self.complex_pow(NAME, other, dtype);
        }
        let is_negative = matches!(other, Operand::Scalar(n) if n.as_f64() < 0.0);
        let expected = "a power of integers that is not negative";
        require(
            NAME,
            !(dtype.is_int() && is_negative),
            expected,
            "a negative number",
        )?;
        if let Operand::Scalar(power) = other
            && !matches!(dtype, DType::F32 | DType::F64)
        {
            require_held(NAME, power, dtype)?;
        }
        self.binary(NAME, BinaryOp::Pow, other, |d| d)
    }

    /// [`Tensor::pow`] in double precision: `f64`, or `complex128`.
    ///
    /// # Errors
    /// Shapes that do not broadcast.
    pub fn float_power(&self, other: impl AsOperand) -> RusTorchResult<Self> {
        const NAME: &str = "float_power";
        let other = other.as_operand()?;
        let dtype = match result_dtype(NAME, &[self.into(), other])?.is_complex() {
            true => DType::Complex128,
            false => DType::F64,
        };
        self.cast(NAME, dtype)?.pow(&other.to_tensor(NAME, dtype)?)
    }

    /// `self · 2^other`. Numbers; integers as `f32`.
    ///
    /// # Errors
    /// Shapes that do not broadcast; a block format.
    pub fn ldexp(&self, other: &Self) -> RusTorchResult<Self> {
        const NAME: &str = "ldexp";
        match other.dtype().is_int() && !self.dtype().is_complex() {
            true => {
                let dtype = float_of(self.dtype());
                let (x, power) = (self.cast(NAME, dtype)?, other.cast(NAME, dtype)?);
                x.binary(NAME, BinaryOp::Ldexp, (&power).into(), |d| d)
            }
            false => self.mul(&other.exp2()?),
        }
    }

    /// Mantissa, from ½ to 1 in magnitude, and exponent (`i32`) of 2 that `self` is the product of;
    /// 0, infinities and NaN have the exponent 0. Floats.
    ///
    /// # Errors
    /// Another dtype.
    pub fn frexp(&self) -> RusTorchResult<(Self, Self)> {
        const NAME: &str = "frexp";
        self.require_float(NAME)?;
        let x = self.cast(NAME, super::compute_dtype(self.dtype()))?;
        let plain = x.isfinite()?.logical_and(&x.ne(0)?)?;
        // The exponent is a whole number, which has no slope.
        let near = x.detach().abs()?.log2()?.floor()?.add(1)?;
        let exponent = Self::where_(&plain, &near, 0)?;
        let scaled = |e: &Self| x.binary(NAME, BinaryOp::Ldexp, (&e.neg()?).into(), |d| d);
        // The logarithm of a number beside a power of 2 may round to that power's.
        let length = scaled(&exponent)?.abs()?;
        let above = length.ge(1.0)?.logical_and(&plain)?.cast(NAME, x.dtype())?;
        let below = length.lt(0.5)?.logical_and(&plain)?.cast(NAME, x.dtype())?;
        let exponent = exponent.add(&above)?.sub(&below)?;
        let mantissa = scaled(&exponent)?.cast(NAME, self.dtype())?;
        Ok((mantissa, exponent.cast(NAME, DType::I32)?))
    }

    /// Rounded to so many digits behind the point, halves to even; before it where `decimals` is
    /// negative. Floats; of integers only with `decimals` 0.
    ///
    /// # Errors
    /// Another dtype.
    pub fn round_decimals(&self, decimals: i32) -> RusTorchResult<Self> {
        const NAME: &str = "round_decimals";
        if decimals == 0 {
            return self.round();
        }
        self.require_float(NAME)?;
        let factor = 10f64.powi(decimals.abs());
        self.composed(NAME, |x| match decimals > 0 {
            true => x.mul(factor)?.round()?.div(factor),
            false => x.div(factor)?.round()?.mul(factor),
        })
    }

    /// What is behind the point: `x - trunc(x)`. Floats.
    ///
    /// # Errors
    /// Another dtype.
    pub fn frac(&self) -> RusTorchResult<Self> {
        self.require_float("frac")?;
        self.sub(&self.trunc()?)
    }
}
