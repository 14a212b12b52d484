//! Arithmetic: sums, products, quotients, bounds.

use rustorch_ir::ops::{Binary, BinaryOp, Ternary, TernaryOp, UnaryOp};
use rustorch_ir::{DType, OpError, Scalar};
use rustorch_macros::track_calls;

use super::{binary_methods, bounding_methods, float_of, unary_methods};
use crate::Tensor;
use crate::api::promote::{AsLimit, AsOperand, Limit, Number, Operand, result_dtype};
use crate::args::numbers::Side;
use crate::error::{RusTorchResult, require};

/// Rounding of [`Tensor::div_mode`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RoundingMode {
    /// Towards zero.
    Trunc,
    /// Down.
    Floor,
}

unary_methods! {
    "`-x`. Takes numbers; integers wrap."
    #[doc(alias = "negative")]
    neg = unary(UnaryOp::Neg);
    "`|x|`; for complex numbers the magnitude, a real number."
    #[doc(alias = "absolute")]
    abs = unary(UnaryOp::Abs);
}

binary_methods! {
    "`self + other`; logical or for booleans."
    add = Add, |d| d;
    "`self - other`."
    #[doc(alias = "subtract")]
    sub = Sub, |d| d;
    "`self · other`; logical and for booleans."
    #[doc(alias = "multiply")]
    mul = Mul, |d| d;
    "`self / other`, the true quotient; an `f32` for integers."
    #[doc(alias = "divide")]
    div = Div, float_of;
    "`self / other`: another name of `div`."
    true_divide = Div, float_of;
    "`⌊self / other⌋`. Takes real numbers; an integer division by zero is an error of evaluation."
    floor_divide = FloorDivide, |d| d;
    "`self - other · ⌊self / other⌋`, with `other`'s sign, as Python's `%`. Takes real numbers; an \
     integer division by zero is an error of evaluation."
    remainder = Remainder, |d| d;
    "`self` with the sign of `other`. Takes real numbers; integers become `f32`."
    copysign = CopySign, float_of;
    "Greatest common divisor, which is not negative. Takes integers."
    gcd = Gcd, |d| d;
}

bounding_methods! {
    "The larger one; NaN if one is NaN. Takes real numbers and booleans."
    maximum = Maximum;
    "The smaller one; NaN if one is NaN. Takes real numbers and booleans."
    minimum = Minimum;
}

#[track_calls]
impl Tensor {
    /// 0 if `self` is negative or NaN, 1 if it is positive, `values` if it is 0. Takes real numbers
    /// and booleans of one dtype.
    ///
    /// # Errors
    /// Fails for shapes that do not broadcast, or for different or unsupported dtypes.
    pub fn heaviside(&self, values: &Self) -> RusTorchResult<Self> {
        const NAME: &str = "heaviside";
        let got = format_args!("{} and {}", self.ty(), values.ty());
        require(
            NAME,
            self.dtype() == values.dtype(),
            "operands of one dtype",
            got,
        )?;
        require(NAME, !self.dtype().is_complex(), "real numbers", self.ty())?;
        let step = self.gt(0)?.cast(NAME, self.dtype())?;
        Self::where_(&self.eq(0)?, values, &step)
    }

    /// `self + alpha · other`: PyTorch's `add` with `alpha`.
    ///
    /// # Errors
    /// The errors of [`Tensor::add`]. Also fails for an `alpha` that the common dtype does not hold, or for a float
    /// with integers.
    pub fn add_scaled(&self, other: impl AsOperand, alpha: impl Number) -> RusTorchResult<Self> {
        let other = other.as_operand()?;
        const NAME: &str = "add_scaled";
        let alpha = alpha.to_number();
        let dtype = result_dtype(NAME, &[self.into(), other])?;
        let is_fraction = matches!(alpha, Scalar::Float(_)) && float_of(dtype) != dtype;
        let expected = format_args!("an alpha that is an integer beside {dtype}");
        require(NAME, !is_fraction, expected, alpha)?;
        let alpha = Operand::Scalar(alpha).as_element(NAME, dtype)?;
        self.add(&other.to_tensor(NAME, dtype)?.mul(&alpha)?)
    }

    /// `other - self`.
    ///
    /// # Errors
    /// The same errors as [`Tensor::sub`].
    pub fn rsub(&self, other: impl AsOperand) -> RusTorchResult<Self> {
        const NAME: &str = "rsub";
        let other = other.as_operand()?;
        let dtype = result_dtype(NAME, &[self.into(), other])?;
        let other = other.to_tensor(NAME, dtype)?;
        other.binary(
            NAME,
            BinaryOp::Sub,
            (&self.cast(NAME, dtype)?).into(),
            |d| d,
        )
    }

    /// The rounded quotient: PyTorch's `div` with `rounding_mode`. Real numbers; integers stay
    /// integers. An integer division by zero is an error of evaluation.
    ///
    /// # Errors
    /// Fails for shapes that do not broadcast, or unsupported dtypes.
    pub fn div_mode(&self, other: impl AsOperand, mode: RoundingMode) -> RusTorchResult<Self> {
        const NAME: &str = "div_mode";
        let other = other.as_operand()?;
        if mode == RoundingMode::Floor {
            return self.binary(NAME, BinaryOp::FloorDivide, other, |d| d);
        }
        let dtype = result_dtype(NAME, &[self.into(), other])?;
        if !dtype.is_int() {
            return self.binary(NAME, BinaryOp::Div, other, float_of)?.trunc();
        }
        let (a, b) = (self.cast(NAME, dtype)?, other.to_tensor(NAME, dtype)?);
        let floor = a.binary(NAME, BinaryOp::FloorDivide, (&b).into(), |d| d)?;
        // Down is away from zero where the quotient is negative and not whole.
        let inexact = a
            .binary(NAME, BinaryOp::Remainder, (&b).into(), |d| d)?
            .ne(0)?;
        let negative = a.lt(0)?.logical_xor(&b.lt(0)?)?;
        floor.add(&inexact.logical_and(&negative)?.cast(NAME, dtype)?)
    }

    /// The remainder of a division that is truncated towards zero: it has `self`'s sign. Real
    /// numbers; an integer division by zero is an error of evaluation.
    ///
    /// # Errors
    /// Fails for shapes that do not broadcast, or unsupported dtypes.
    pub fn fmod(&self, other: impl AsOperand) -> RusTorchResult<Self> {
        const NAME: &str = "fmod";
        let other = other.as_operand()?;
        let dtype = result_dtype(NAME, &[self.into(), other])?;
        if !dtype.is_int() {
            return self.binary(NAME, BinaryOp::Fmod, other, |d| d);
        }
        let (a, b) = (self.cast(NAME, dtype)?, other.to_tensor(NAME, dtype)?);
        let rest = a.binary(NAME, BinaryOp::Remainder, (&b).into(), |d| d)?;
        let opposite = rest.ne(0)?.logical_and(&a.lt(0)?.logical_xor(&b.lt(0)?)?)?;
        Self::where_(&opposite, &rest.sub(&b)?, &rest)
    }

    /// Least common multiple, which is not negative. Takes integers.
    ///
    /// # Errors
    /// Fails for shapes that do not broadcast, or unsupported dtypes.
    pub fn lcm(&self, other: impl AsOperand) -> RusTorchResult<Self> {
        const NAME: &str = "lcm";
        let other = other.as_operand()?;
        let dtype = result_dtype(NAME, &[self.into(), other])?;
        let (a, b) = (self.cast(NAME, dtype)?, other.to_tensor(NAME, dtype)?);
        let divisor = a.binary(NAME, BinaryOp::Gcd, (&b).into(), |d| d)?;
        // Of two zeros it is 0.
        let divisor = divisor.clamp_min(1)?;
        a.floor_divide(&divisor)?.mul(&b)?.abs()
    }

    /// The larger one; if one is NaN, the other. Takes real numbers and booleans.
    ///
    /// # Errors
    /// Fails for shapes that do not broadcast, or unsupported dtypes.
    pub fn fmax(&self, other: impl AsOperand) -> RusTorchResult<Self> {
        self.choose("fmax", BinaryOp::Maximum, other.as_operand()?)
    }

    /// The smaller one; if one is NaN, the other. Takes real numbers and booleans.
    ///
    /// # Errors
    /// Fails for shapes that do not broadcast, or unsupported dtypes.
    pub fn fmin(&self, other: impl AsOperand) -> RusTorchResult<Self> {
        self.choose("fmin", BinaryOp::Minimum, other.as_operand()?)
    }

    fn choose(&self, name: &'static str, op: BinaryOp, other: Operand) -> RusTorchResult<Self> {
        let dtype = result_dtype(name, &[self.into(), other])?;
        if !dtype.is_float() {
            return self.bounded(name, op, other);
        }
        let (a, b) = (self.cast(name, dtype)?, other.to_tensor(name, dtype)?);
        let chosen = a.binary(name, op, (&b).into(), |d| d)?;
        Self::where_(&b.isnan()?, &a, &Self::where_(&a.isnan()?, &b, &chosen)?)
    }

    /// The next representable number after `self` in the direction of `other`. Takes floats.
    ///
    /// # Errors
    /// Fails for shapes that do not broadcast, or an unsupported dtype.
    pub fn nextafter(&self, other: impl AsOperand) -> RusTorchResult<Self> {
        const NAME: &str = "nextafter";
        let other = other.as_operand()?;
        let dtype = result_dtype(NAME, &[self.into(), other])?;
        // Bits of the mantissa behind the point, the least exponent, the largest number.
        let (digits, least, largest) = match dtype {
            DType::F16 => (10, -24, half::f16::MAX.to_f64()),
            DType::BF16 => (7, -133, half::bf16::MAX.to_f64()),
            _ => return self.binary(NAME, BinaryOp::NextAfter, other, |d| d),
        };
        let x = self.cast(NAME, DType::F32)?;
        let to = other.to_tensor(NAME, dtype)?.cast(NAME, DType::F32)?;
        let tiny = 2f64.powi(least);
        let (mantissa, exponent) = x.frexp()?;
        let step = x.ones_like()?.ldexp(&exponent.sub(digits + 1)?)?;
        // Below a power of 2 numbers are twice as close.
        let rises = to.gt(&x)?;
        let inwards = rises.logical_xor(&x.gt(0)?)?;
        let halves = mantissa.abs()?.eq(0.5)?.logical_and(&inwards)?;
        let step = Self::where_(&halves, &step.mul(0.5)?, &step)?.clamp_min(tiny)?;
        let step = Self::where_(&x.eq(0)?, tiny, &step)?;
        let next = x.add(&Self::where_(&rises, &step, &step.neg()?)?)?;
        let next = Self::where_(&x.isinf()?, &x.sign()?.mul(largest)?, &next)?;
        let stays = to.eq(&x)?.logical_or(&to.isnan()?)?;
        Self::where_(&stays, &to, &next)?.cast(NAME, dtype)
    }

    /// `x · x`; of booleans an `i64`.
    ///
    /// # Errors
    /// Fails for a block format.
    pub fn square(&self) -> RusTorchResult<Self> {
        let x = match self.dtype() {
            DType::Bool => self.cast("square", DType::I64)?,
            _ => self.clone(),
        };
        x.binary("square", BinaryOp::Mul, (&x).into(), |d| d)
    }

    /// `x` itself. Takes numbers.
    ///
    /// # Errors
    /// Fails for booleans.
    pub fn positive(&self) -> RusTorchResult<Self> {
        let expected = "numbers, not booleans";
        require("positive", self.dtype() != DType::Bool, expected, self.ty())?;
        Ok(self.clone())
    }

    /// `min(max(self, low), high)`; the bounds are tensors that broadcast, or numbers. `None` is no bound,
    /// for one of them. Numbers beyond
    /// all integers of the dtype leave the elements unchanged. The gradient is 0 where a number as a
    /// bound applies. At a tensor bound equal to `self`, both share the gradient.
    ///
    /// # Errors
    /// Fails for a dtype without order, or shapes that do not broadcast. Also fails for a bound
    /// that would be the result but is out of range: 200 for `i8`. Also fails without any bound.
    pub fn clamp(&self, low: impl AsLimit, high: impl AsLimit) -> RusTorchResult<Self> {
        const NAME: &str = "clamp";
        let (Limit(low), Limit(high)) = (low.as_limit()?, high.as_limit()?);
        let (least, most) = match (low, high) {
            (Some(low), Some(high)) => (low, high),
            (Some(low), None) => return self.clamp_min(low),
            (None, Some(high)) => return self.clamp_max(high),
            (None, None) => {
                return Err(OpError::new(NAME, "at least one bound", "none").into());
            }
        };
        let dtype = result_dtype(NAME, &[self.into(), least, most])?;
        let x = Operand::from(self).as_tensor(NAME, dtype)?;
        let low = least.as_bound(NAME, dtype, Side::Lower)?;
        let high = most.as_bound(NAME, dtype, Side::Upper)?;
        let op = TernaryOp::Clamp;
        let y = Self::apply(NAME, Ternary { op }, &[&*x, &*low, &*high])?;
        match (least, most) {
            (Operand::Scalar(least), Operand::Scalar(most)) => {
                self.kept_inside(&y, |x| x.gt(least)?.logical_and(&x.lt(most)?))
            }
            _ => Ok(y),
        }
    }

    /// `self` if it is larger, else the bound. The gradient at a number is 0; a tensor bound that
    /// equals `self` shares it. Takes real numbers and booleans.
    ///
    /// # Errors
    /// Fails for shapes that do not broadcast, or a dtype without order.
    pub fn clamp_min(&self, bound: impl AsOperand) -> RusTorchResult<Self> {
        let bound = bound.as_operand()?;
        let y = self.bounded("clamp_min", BinaryOp::Maximum, bound)?;
        match bound {
            Operand::Scalar(bound) => self.kept_inside(&y, |x| x.gt(bound)),
            Operand::Tensor(_) => Ok(y),
        }
    }

    /// `self` if it is smaller, else the bound. Otherwise like [`Tensor::clamp_min`].
    ///
    /// # Errors
    /// The errors of [`Tensor::clamp_min`].
    pub fn clamp_max(&self, bound: impl AsOperand) -> RusTorchResult<Self> {
        let bound = bound.as_operand()?;
        let y = self.bounded("clamp_max", BinaryOp::Minimum, bound)?;
        match bound {
            Operand::Scalar(bound) => self.kept_inside(&y, |x| x.lt(bound)),
            Operand::Tensor(_) => Ok(y),
        }
    }

    /// `bounded`, which is `self` inside of bounds: its gradient is that of `self` there, and 0 elsewhere.
    pub(super) fn kept_inside(
        &self,
        bounded: &Self,
        is_inside: impl FnOnce(&Self) -> RusTorchResult<Self>,
    ) -> RusTorchResult<Self> {
        match self.requires_grad() {
            true => Ok(bounded.with_gradient_of(&Self::where_(&is_inside(self)?, self, 0.0)?)),
            false => Ok(bounded.clone()),
        }
    }

    /// `self + weight · (end - self)`. Floats and complex numbers of one dtype, which broadcast;
    /// `weight` is a tensor or a number.
    ///
    /// # Errors
    /// Fails for unsupported shapes or dtypes.
    pub fn lerp(&self, end: &Self, weight: impl AsOperand) -> RusTorchResult<Self> {
        const NAME: &str = "lerp";
        require(NAME, self.dtype() == end.dtype(), self.ty(), end.ty())?;
        let legal = self.dtype().is_float() || self.dtype().is_complex();
        require(NAME, legal, "floats or complex numbers", self.ty())?;
        let compute = super::compute_dtype(self.dtype());
        let (a, b) = (self.cast(NAME, compute)?, end.cast(NAME, compute)?);
        let weight = weight.as_operand()?.as_element(NAME, compute)?;
        if compute.is_float() {
            let op = TernaryOp::Lerp;
            let y = Self::apply(NAME, Ternary { op }, &[&a, &b, &weight])?;
            return y.cast(NAME, self.dtype());
        }
        let way = b.sub(&a)?;
        // From the nearer end, so that both ends are met.
        let from_start = a.add(&way.mul(&weight)?)?;
        let from_end = b.sub(&way.mul(&weight.rsub(1)?)?)?;
        let near = weight.abs()?.lt(0.5)?;
        Self::where_(&near, &from_start, &from_end)?.cast(NAME, self.dtype())
    }

    /// `self + value · a · b`. Takes numbers, which broadcast and promote.
    ///
    /// # Errors
    /// Fails for shapes that do not broadcast.
    pub fn addcmul(&self, a: &Self, b: &Self, value: impl Number) -> RusTorchResult<Self> {
        self.combined("addcmul", [a, b], value.to_number(), BinaryOp::Mul)
    }

    /// `self + value · a / b`. Takes floats and complex numbers, which broadcast and promote.
    ///
    /// # Errors
    /// Fails for shapes that do not broadcast, or if both are integers.
    pub fn addcdiv(&self, a: &Self, b: &Self, value: impl Number) -> RusTorchResult<Self> {
        const NAME: &str = "addcdiv";
        let is_whole = |x: &Self| x.dtype().is_int() || x.dtype() == DType::Bool;
        let expected = "floats or complex numbers to divide";
        require(NAME, !(is_whole(a) && is_whole(b)), expected, a.ty())?;
        self.combined(NAME, [a, b], value.to_number(), BinaryOp::Div)
    }

    /// `self + value · a ∘ b`, in at least single precision.
    fn combined(
        &self,
        name: &'static str,
        operands: [&Self; 2],
        value: Scalar,
        op: BinaryOp,
    ) -> RusTorchResult<Self> {
        let [a, b] = operands;
        let dtype = result_dtype(name, &[self.into(), a.into(), b.into()])?;
        let compute = super::compute_dtype(dtype);
        let apply = |op, a: &Self, b: &Self| Self::apply(name, Binary { op }, &[a, b]);
        let [this, a, b] = [self, a, b].map(|x| Operand::from(x).as_tensor(name, compute));
        let value = Operand::Scalar(value).as_element(name, compute)?;
        let product = apply(BinaryOp::Mul, &apply(op, &*a?, &*b?)?, &value)?;
        apply(BinaryOp::Add, &*this?, &product)?.cast(name, dtype)
    }

    /// The norm of order `p` of `self - other`.
    ///
    /// # Errors
    /// The same errors as [`Tensor::sub`] and [`Tensor::norm`].
    pub fn dist(&self, other: &Self, p: f64) -> RusTorchResult<Self> {
        self.sub(other)?.norm(p, None, false)
    }
}
