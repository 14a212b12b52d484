//! Powers, exponential functions, logarithms, trigonometry, rounding.

use rustorch_ir::DType;
use rustorch_ir::ops::{BinaryOp, UnaryOp};
use rustorch_macros::track_calls;

use super::{binary_methods, composed_methods, float_of, unary_methods};
use crate::Tensor;
use crate::api::promote::AsOperand;
use crate::api::promote::{Operand, result_dtype};
use crate::args::numbers::require_held;
use crate::error::{RusTorchResult, require};

unary_methods! {
    "eˣ. Takes real numbers (integers become `f32`) and complex ones."
    exp = function(UnaryOp::Exp);
    "2ˣ. Takes real numbers (integers become `f32`) and complex ones."
    exp2 = function(UnaryOp::Exp2);
    "`eˣ - 1`, exact also near 0. Takes real numbers (integers become `f32`) and complex ones."
    expm1 = function(UnaryOp::Expm1);
    "Natural logarithm. Takes real numbers (integers become `f32`) and complex ones."
    log = function(UnaryOp::Log);
    "`ln(1 + x)`, exact also near 0. Takes real numbers (integers become `f32`) and complex ones."
    log1p = function(UnaryOp::Log1p);
    "Logarithm to base 2. Takes real numbers (integers become `f32`) and complex ones."
    log2 = function(UnaryOp::Log2);
    "Logarithm to base 10. Takes real numbers (integers become `f32`) and complex ones."
    log10 = function(UnaryOp::Log10);
    "Square root. Takes real numbers (integers become `f32`) and complex ones."
    sqrt = function(UnaryOp::Sqrt);
    "`1 / √x`. Takes real numbers (integers become `f32`) and complex ones."
    rsqrt = function(UnaryOp::Rsqrt);
    "`1 / x`. Takes real numbers (integers become `f32`) and complex ones."
    reciprocal = function(UnaryOp::Reciprocal);
    "Sine. Takes real numbers (integers become `f32`) and complex ones."
    sin = function(UnaryOp::Sin);
    "Cosine. Takes real numbers (integers become `f32`) and complex ones."
    cos = function(UnaryOp::Cos);
    "Tangent. Takes real numbers (integers become `f32`) and complex ones."
    tan = function(UnaryOp::Tan);
    "Inverse sine. Takes real numbers (integers become `f32`) and complex ones."
    #[doc(alias = "arcsin")]
    asin = function(UnaryOp::Asin);
    "Inverse cosine. Takes real numbers (integers become `f32`) and complex ones."
    #[doc(alias = "arccos")]
    acos = function(UnaryOp::Acos);
    "Inverse tangent. Takes real numbers (integers become `f32`) and complex ones."
    #[doc(alias = "arctan")]
    atan = function(UnaryOp::Atan);
    "Hyperbolic sine. Takes real numbers (integers become `f32`) and complex ones."
    sinh = function(UnaryOp::Sinh);
    "Hyperbolic cosine. Takes real numbers (integers become `f32`) and complex ones."
    cosh = function(UnaryOp::Cosh);
    "Hyperbolic tangent. Takes real numbers (integers become `f32`) and complex ones."
    tanh = function(UnaryOp::Tanh);
    "Inverse hyperbolic sine. Takes real numbers (integers become `f32`) and complex ones."
    #[doc(alias = "arcsinh")]
    asinh = function(UnaryOp::Asinh);
    "Inverse hyperbolic cosine. Takes real numbers (integers become `f32`) and complex ones."
    #[doc(alias = "arccosh")]
    acosh = function(UnaryOp::Acosh);
    "Inverse hyperbolic tangent. Takes real numbers (integers become `f32`) and complex ones."
    #[doc(alias = "arctanh")]
    atanh = function(UnaryOp::Atanh);
    "Largest integer at or below, as a float. Integers are unchanged."
    floor = rounding(UnaryOp::Floor);
    "Smallest integer at or above, as a float. Integers are unchanged."
    ceil = rounding(UnaryOp::Ceil);
    "Nearest integer, halves to even, as a float. Integers are unchanged."
    round = rounding(UnaryOp::Round);
    "Integer part, as a float. Integers are unchanged."
    trunc = rounding(UnaryOp::Trunc);
    "Integer part, as a float: another name of `trunc`. Integers are unchanged."
    fix = rounding(UnaryOp::Trunc);
}

binary_methods! {
    "The angle of the point at `other` to the right and `self` up, from −π to π. Takes real numbers; \
     integers become `f32`."
    #[doc(alias = "arctan2")]
    atan2 = Atan2, float_of;
    "`√(self² + other²)`. Takes floats."
    hypot = Hypot, |d| d;
}

composed_methods! {
    "Converts degrees to radians. Takes real numbers; integers become `f32`."
    deg2rad() = |x| x.mul(std::f64::consts::PI / 180.0);
    "Converts radians to degrees. Takes real numbers; integers become `f32`."
    rad2deg() = |x| x.mul(180.0 / std::f64::consts::PI);
}

#[track_calls]
impl Tensor {
    /// `ln(x / (1 - x))`; with `eps`, `x` is clamped to between `eps` and `1 - eps` first. Takes
    /// real numbers; integers become `f32`.
    ///
    /// # Errors
    /// Fails for a dtype that is not real, or an `eps` that the dtype does not hold.
    pub fn logit(&self, eps: Option<f64>) -> RusTorchResult<Self> {
        const NAME: &str = "logit";
        let dtype = float_of(self.dtype());
        // The bounds are elements, as in PyTorch.
        let bounds = |eps: f64| -> RusTorchResult<[Self; 2]> {
            let low = Operand::Scalar(eps.into()).as_element(NAME, dtype)?;
            Ok([low.clone(), low.rsub(1)?])
        };
        let bounds = eps.map(bounds).transpose()?;
        self.composed(NAME, |x| {
            let x = match &bounds {
                // The lower bound counts where it is above the upper one.
                Some([low, high]) => {
                    let bounded = Self::where_(&x.gt(high)?, high, x)?;
                    Self::where_(&x.lt(low)?, low, &bounded)?
                }
                None => x.clone(),
            };
            let odds = x.div(&x.rsub(1)?)?.log()?;
            match x.requires_grad() {
                // The quotient has no slope at the ends, where that of the whole is infinite.
                true => Ok(odds.with_gradient_of(&x.log()?.sub(&x.neg()?.log1p()?)?)),
                false => Ok(odds),
            }
        })
    }

    /// `sin(πx) / (πx)`, 1 at 0. Takes real numbers (integers become `f32`) and complex ones.
    ///
    /// # Errors
    /// Fails for a block format.
    pub fn sinc(&self) -> RusTorchResult<Self> {
        self.composed_of_numbers("sinc", |x| x.mul(std::f64::consts::PI)?.sine_ratio())
    }

    /// `sin(x) / x`, 1 at 0. Near 0 it is computed by its series, whose derivatives are as exact.
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

    /// `ln(eᵃ + eᵇ)`, computed without overflow. Takes real numbers (integers become `f32`) and
    /// complex ones.
    ///
    /// # Errors
    /// Fails for shapes that do not broadcast, or a block format.
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

    /// `log₂(2ᵃ + 2ᵇ)`, computed without overflow. Takes real numbers (integers become `f32`) and
    /// complex ones.
    ///
    /// # Errors
    /// Fails for shapes that do not broadcast, or a block format.
    pub fn logaddexp2(&self, other: impl AsOperand) -> RusTorchResult<Self> {
        use std::f64::consts::{LN_2, LOG2_E};
        self.composed_of_two("logaddexp2", other.as_operand()?, |a, b| {
            a.mul(LN_2)?.logaddexp(&b.mul(LN_2)?)?.mul(LOG2_E)
        })
    }

    /// `self` to the power `other`. Takes numbers. Integers to a tensor of negative integers give
    /// 0, or ±1 where `self` is ±1.
    ///
    /// # Errors
    /// Fails for integers to the power of a negative integer, as in PyTorch. Also fails for an
    /// exponent that the dtype of integers or halves does not hold. Also fails for shapes that do
    /// not broadcast, or booleans.
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
    /// Fails for shapes that do not broadcast.
    pub fn float_power(&self, other: impl AsOperand) -> RusTorchResult<Self> {
        const NAME: &str = "float_power";
        let other = other.as_operand()?;
        let dtype = match result_dtype(NAME, &[self.into(), other])?.is_complex() {
            true => DType::Complex128,
            false => DType::F64,
        };
        self.cast(NAME, dtype)?.pow(&other.to_tensor(NAME, dtype)?)
    }

    /// `self · 2^other`. Takes numbers; integers become `f32`.
    ///
    /// # Errors
    /// Fails for shapes that do not broadcast, or a block format.
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

    /// Mantissa, from ½ to 1 in magnitude, and exponent of 2 (`i32`). 0, infinities and NaN have
    /// the exponent 0. Takes floats.
    ///
    /// # Errors
    /// Fails for an unsupported dtype.
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

    /// Rounded to `decimals` digits after the point, halves to even; to digits before the point if
    /// `decimals` is negative.
    ///
    /// # Errors
    /// Fails for an unsupported dtype.
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

    /// The fractional part: `x - trunc(x)`. Takes floats.
    ///
    /// # Errors
    /// Fails for an unsupported dtype.
    pub fn frac(&self) -> RusTorchResult<Self> {
        self.require_float("frac")?;
        self.sub(&self.trunc()?)
    }
}
