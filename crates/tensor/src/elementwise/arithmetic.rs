//! Arithmetic: sums, products, quotients, bounds.

use rustorch_ir::ops::{Binary, BinaryOp, Ternary, TernaryOp, UnaryOp};
use rustorch_ir::{DType, Scalar};
use rustorch_macros::track_calls;

use super::{binary_methods, bounding_methods, float_of, unary_methods};
use crate::Tensor;
use crate::error::{RusTorchResult, require};
use crate::numbers::Side;
use crate::promote::{AsOperand, Number};
use crate::promote::{Operand, result_dtype};

/// How [`Tensor::div_mode`] makes whole numbers of quotients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RoundingMode {
    /// Towards zero.
    Trunc,
    /// Down.
    Floor,
}

unary_methods! {
    "`-x`. Numbers; integers wrap."
    neg = unary(UnaryOp::Neg);
    "`|x|`; of complex numbers the length, a real."
    abs = unary(UnaryOp::Abs);
}

binary_methods! {
    "`self + other`; of booleans, or."
    add = Add, |d| d;
    "`self - other`."
    sub = Sub, |d| d;
    "`self · other`; of booleans, and."
    mul = Mul, |d| d;
    "`self / other`, the true quotient: of integers an `f32`."
    div = Div, float_of;
    "`self / other`: `div` by its other name."
    true_divide = Div, float_of;
    "`⌊self / other⌋`. Real numbers; an integer division by zero is an error of evaluation."
    floor_divide = FloorDivide, |d| d;
    "`self - other · ⌊self / other⌋`, with `other`'s sign, as Python's `%`. Real numbers; an \
     integer division by zero is an error of evaluation."
    remainder = Remainder, |d| d;
    "`self` with the sign of `other`. Real numbers; integers as `f32`."
    copysign = CopySign, float_of;
    "Greatest common divisor, which is not negative. Integers."
    gcd = Gcd, |d| d;
}

bounding_methods! {
    "The larger; NaN where one is NaN. Real numbers and booleans."
    maximum = Maximum;
    "The smaller; NaN where one is NaN. Real numbers and booleans."
    minimum = Minimum;
}

#[track_calls]
impl Tensor {
    /// 0 where `self` is negative, 1 where it is positive, `values` where it is 0. Real numbers and
    /// booleans of one dtype.
    ///
    /// # Errors
    /// Shapes that do not broadcast; different dtypes, or others.
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
        let step = Self::where_(&self.eq(0)?, values, &step)?;
        match self.dtype().is_float() {
            true => Self::where_(&self.isnan()?, self, &step),
            false => Ok(step),
        }
    }

    /// `self + alpha · other`: PyTorch's `add` with `alpha`.
    ///
    /// # Errors
    /// Errors of [`Tensor::add`]; an `alpha` that the common dtype does not hold, or a float beside integers.
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
    /// As [`Tensor::sub`].
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

    /// The quotient made whole: PyTorch's `div` with `rounding_mode`. Real numbers; integers stay
    /// integers, whose division by zero is an error of evaluation.
    ///
    /// # Errors
    /// Shapes that do not broadcast; other dtypes.
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

    /// The remainder of a division that is cut towards zero: it has `self`'s sign. Real numbers; an
    /// integer division by zero is an error of evaluation.
    ///
    /// # Errors
    /// Shapes that do not broadcast; other dtypes.
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

    /// Least common multiple, which is not negative. Integers.
    ///
    /// # Errors
    /// Shapes that do not broadcast; other dtypes.
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

    /// The larger; where one is NaN, the other. Real numbers and booleans.
    ///
    /// # Errors
    /// Shapes that do not broadcast; other dtypes.
    pub fn fmax(&self, other: impl AsOperand) -> RusTorchResult<Self> {
        self.choose("fmax", BinaryOp::Maximum, other.as_operand()?)
    }

    /// The smaller; where one is NaN, the other. Real numbers and booleans.
    ///
    /// # Errors
    /// Shapes that do not broadcast; other dtypes.
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

    /// The next number from `self` towards `other` that the dtype has. Floats.
    ///
    /// # Errors
    /// Shapes that do not broadcast; another dtype.
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
    /// A block format.
    pub fn square(&self) -> RusTorchResult<Self> {
        let x = match self.dtype() {
            DType::Bool => self.cast("square", DType::I64)?,
            _ => self.clone(),
        };
        x.binary("square", BinaryOp::Mul, (&x).into(), |d| d)
    }

    /// `x` itself. Numbers.
    ///
    /// # Errors
    /// Booleans.
    pub fn positive(&self) -> RusTorchResult<Self> {
        let expected = "numbers, not booleans";
        require("positive", self.dtype() != DType::Bool, expected, self.ty())?;
        Ok(self.clone())
    }

    /// `min(max(self, low), high)`; the bounds are tensors that broadcast, or numbers. Numbers beyond
    /// all integers of the dtype leave the elements as they are. At a bound that is a number the
    /// gradient is 0. With one that is a tensor `self` shares it.
    ///
    /// # Errors
    /// A dtype without order; shapes that do not broadcast; a bound out of range that would be the result, such as a
    /// lower one of 200 of `i8`.
    pub fn clamp(&self, low: impl AsOperand, high: impl AsOperand) -> RusTorchResult<Self> {
        const NAME: &str = "clamp";
        let (least, most) = (low.as_operand()?, high.as_operand()?);
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

    /// `self` where that is larger, else the bound: a number, at which the gradient is 0, or a tensor, with which
    /// `self` shares it. Real numbers and booleans.
    ///
    /// # Errors
    /// Shapes that do not broadcast; a dtype without order.
    pub fn clamp_min(&self, bound: impl AsOperand) -> RusTorchResult<Self> {
        let bound = bound.as_operand()?;
        let y = self.bounded("clamp_min", BinaryOp::Maximum, bound)?;
        match bound {
            Operand::Scalar(bound) => self.kept_inside(&y, |x| x.gt(bound)),
            Operand::Tensor(_) => Ok(y),
        }
    }

    /// `self` where that is smaller, else the bound: otherwise as [`Tensor::clamp_min`].
    ///
    /// # Errors
    /// Errors of [`Tensor::clamp_min`].
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
    /// Shapes or dtypes other than these.
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

    /// `self + value · a · b`. Numbers, which broadcast and promote.
    ///
    /// # Errors
    /// Shapes that do not broadcast.
    pub fn addcmul(&self, a: &Self, b: &Self, value: impl Number) -> RusTorchResult<Self> {
        self.combined("addcmul", [a, b], value.to_number(), BinaryOp::Mul)
    }

    /// `self + value · a / b`. Floats and complex numbers, which broadcast and promote.
    ///
    /// # Errors
    /// Shapes that do not broadcast; integers by integers.
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
    /// As [`Tensor::sub`] and [`Tensor::norm`].
    pub fn dist(&self, other: &Self, p: f64) -> RusTorchResult<Self> {
        self.sub(other)?.norm(p, None, false)
    }
}
