//! Complex numbers: their parts, and functions of them, which are made of real ones.

use rustorch_ir::DType;
use rustorch_ir::ops::{Binary, BinaryOp, UnaryOp};
use rustorch_macros::track_calls;

use super::unary_methods;
use crate::Tensor;
use crate::error::{RusTorchResult, require};
use crate::promote::Operand;

unary_methods! {
    "Imaginary part of complex numbers."
    imag = unary(UnaryOp::Imag);
}

#[track_calls]
impl Tensor {
    /// Complex conjugate; real numbers as they are.
    ///
    /// # Errors
    /// None.
    pub fn conj(&self) -> RusTorchResult<Self> {
        match self.dtype().is_complex() {
            true => self.unary("conj", UnaryOp::Conj),
            false => Ok(self.clone()),
        }
    }

    /// Real part; real numbers as they are.
    ///
    /// # Errors
    /// None.
    pub fn real(&self) -> RusTorchResult<Self> {
        match self.dtype().is_complex() {
            true => self.unary("real", UnaryOp::Real),
            false => Ok(self.clone()),
        }
    }

    /// The complex numbers `real + imag · i` of two tensors of `f32`, or two of `f64`, which
    /// broadcast.
    ///
    /// # Errors
    /// Other dtypes; shapes that do not broadcast.
    pub fn complex(real: &Self, imag: &Self) -> RusTorchResult<Self> {
        let op = BinaryOp::Complex;
        Self::apply("complex", Binary { op }, &[real, imag])
    }

    /// The complex numbers of these lengths and angles, two tensors of `f32`, or two of `f64`, which
    /// broadcast.
    ///
    /// # Errors
    /// Other dtypes; shapes that do not broadcast.
    pub fn polar(length: &Self, angle: &Self) -> RusTorchResult<Self> {
        require(
            "polar",
            length.dtype() == angle.dtype(),
            length.ty(),
            angle.ty(),
        )?;
        Self::complex(&length.mul(&angle.cos()?)?, &length.mul(&angle.sin()?)?)
    }

    /// Real and imaginary parts as a last dimension of size 2. (A copy, where PyTorch has a view.)
    ///
    /// # Errors
    /// Real numbers.
    pub fn view_as_real(&self) -> RusTorchResult<Self> {
        let name = "view_as_real";
        require(
            name,
            self.dtype().is_complex(),
            "complex numbers",
            self.ty(),
        )?;
        Self::stack(&[&self.real()?, &self.imag()?], -1)
    }

    /// The complex numbers whose parts are the last dimension, of size 2, of an `f32` or `f64`. (A
    /// copy, where PyTorch has a view.)
    ///
    /// # Errors
    /// Other shapes or dtypes.
    pub fn view_as_complex(&self) -> RusTorchResult<Self> {
        let pairs = self.shape().last() == Some(&2);
        let expected = "a last dimension of size 2";
        require("view_as_complex", pairs, expected, self.ty())?;
        Self::complex(&self.select(-1, 0)?, &self.select(-1, 1)?)
    }

    /// `x / |x|`, 0 of 0; of real numbers [`Tensor::sign`].
    ///
    /// # Errors
    /// A dtype other than of numbers.
    pub fn sgn(&self) -> RusTorchResult<Self> {
        if !self.dtype().is_complex() {
            return self.sign();
        }
        let length = self.abs()?;
        let divisor = Self::where_(&length.eq(0)?, 1.0, &length)?;
        Self::complex(&self.real()?.div(&divisor)?, &self.imag()?.div(&divisor)?)
    }

    /// The angle of complex numbers, from −π to π; of real ones 0, or π below 0, and NaN of NaN.
    /// Integers as `f32`.
    ///
    /// # Errors
    /// A block format.
    pub fn angle(&self) -> RusTorchResult<Self> {
        if self.dtype().is_complex() {
            return self.imag()?.atan2(&self.real()?);
        }
        self.composed("angle", |x| {
            let angle = Self::where_(&x.lt(0)?, std::f64::consts::PI, 0.0)?;
            // The angle of NaN is NaN, by a function without a slope.
            Self::where_(&x.isnan()?, &x.floor()?, &angle.cast("angle", x.dtype())?)
        })
    }

    fn parts(&self) -> RusTorchResult<(Self, Self)> {
        Ok((self.real()?, self.imag()?))
    }

    /// `i · z`.
    fn times_i(&self) -> RusTorchResult<Self> {
        let (x, y) = self.parts()?;
        Self::complex(&y.neg()?, &x)
    }

    /// `-i · z`.
    fn times_minus_i(&self) -> RusTorchResult<Self> {
        let (x, y) = self.parts()?;
        Self::complex(&y, &x.neg()?)
    }

    /// A function of complex numbers. The inverse functions are those of W. Kahan (1987, *Branch cuts
    /// for complex elementary functions*).
    pub(super) fn complex_function(&self, name: &'static str, op: UnaryOp) -> RusTorchResult<Self> {
        use std::f64::consts::{LN_2, LN_10};
        match op {
            UnaryOp::Log => self.complex_log(),
            UnaryOp::Log2 => self.complex_log()?.div(LN_2),
            UnaryOp::Log10 => self.complex_log()?.div(LN_10),
            UnaryOp::Log1p => self.complex_log1p(),
            UnaryOp::Exp2 => self.mul(LN_2)?.exp(),
            UnaryOp::Expm1 => self.complex_expm1(),
            UnaryOp::Sqrt => self.complex_sqrt(),
            UnaryOp::Rsqrt => self.complex_sqrt()?.reciprocal(),
            UnaryOp::Sin => self.times_i()?.complex_sinh()?.times_minus_i(),
            UnaryOp::Cos => self.times_i()?.complex_cosh(),
            UnaryOp::Tan => self.times_i()?.complex_tanh()?.times_minus_i(),
            UnaryOp::Sinh => self.complex_sinh(),
            UnaryOp::Cosh => self.complex_cosh(),
            UnaryOp::Tanh => self.complex_tanh(),
            UnaryOp::Asin => self.complex_asin(),
            UnaryOp::Acos => self.complex_acos(),
            UnaryOp::Atan => self.times_i()?.complex_atanh()?.times_minus_i(),
            UnaryOp::Asinh => self.times_i()?.complex_asin()?.times_minus_i(),
            UnaryOp::Acosh => self.complex_acosh(),
            UnaryOp::Atanh => self.complex_atanh(),
            _ => self.unary(name, op),
        }
    }

    fn complex_log(&self) -> RusTorchResult<Self> {
        let (x, y) = self.parts()?;
        let (a, b) = (x.abs()?, y.abs()?);
        let (large, small) = (a.maximum(&b)?, a.minimum(&b)?);
        // Near 1 the logarithm of the length is that of what its square differs by.
        let square = large.sub(1)?.mul(&large.add(1)?)?.add(&small.square()?)?;
        let near = large.gt(0.5)?.logical_and(&large.lt(2.0)?)?;
        let length = Self::where_(&near, &square.log1p()?.mul(0.5)?, &self.abs()?.log()?)?;
        Self::complex(&length, &y.atan2(&x)?)
    }

    fn complex_log1p(&self) -> RusTorchResult<Self> {
        let (x, y) = self.parts()?;
        let square = x.mul(&x.add(2)?)?.add(&y.square()?)?;
        let small = self.abs()?.lt(0.5)?;
        let length = self.add(1)?.complex_log()?.real()?;
        let length = Self::where_(&small, &square.log1p()?.mul(0.5)?, &length)?;
        Self::complex(&length, &y.atan2(&x.add(1)?)?)
    }

    fn complex_expm1(&self) -> RusTorchResult<Self> {
        let (x, y) = self.parts()?;
        let turned = y.mul(0.5)?.sin()?.square()?.mul(2)?;
        let re = x.expm1()?.mul(&y.cos()?)?.sub(&turned)?;
        Self::complex(&re, &x.exp()?.mul(&y.sin()?)?)
    }

    fn complex_sqrt(&self) -> RusTorchResult<Self> {
        let (x, y) = self.parts()?;
        let root = x.abs()?.add(&self.abs()?)?.mul(0.5)?.sqrt()?;
        let rest = y.abs()?.div(&root)?.mul(0.5)?;
        let rest = Self::where_(&root.eq(0)?, 0.0, &rest)?;
        let right = x.ge(0)?;
        let re = Self::where_(&right, &root, &rest)?;
        Self::complex(&re, &Self::where_(&right, &rest, &root)?.copysign(&y)?)
    }

    fn complex_sinh(&self) -> RusTorchResult<Self> {
        let (x, y) = self.parts()?;
        Self::complex(&x.sinh()?.mul(&y.cos()?)?, &x.cosh()?.mul(&y.sin()?)?)
    }

    fn complex_cosh(&self) -> RusTorchResult<Self> {
        let (x, y) = self.parts()?;
        Self::complex(&x.cosh()?.mul(&y.cos()?)?, &x.sinh()?.mul(&y.sin()?)?)
    }

    fn complex_tanh(&self) -> RusTorchResult<Self> {
        let (x, y) = self.parts()?;
        // Beyond, it is ±1 but for what is far below the last digit.
        let (x, y) = (x.clamp(-30.0, 30.0)?.mul(2)?, y.mul(2)?);
        let divisor = x.cosh()?.add(&y.cos()?)?;
        Self::complex(&x.sinh()?.div(&divisor)?, &y.sin()?.div(&divisor)?)
    }

    fn complex_asin(&self) -> RusTorchResult<Self> {
        let (a, c) = (self.rsub(1)?.complex_sqrt()?, self.add(1)?.complex_sqrt()?);
        let re = self.real()?.atan2(&a.mul(&c)?.real()?)?;
        Self::complex(&re, &a.conj()?.mul(&c)?.imag()?.asinh()?)
    }

    fn complex_acos(&self) -> RusTorchResult<Self> {
        let (a, c) = (self.rsub(1)?.complex_sqrt()?, self.add(1)?.complex_sqrt()?);
        let re = a.real()?.atan2(&c.real()?)?.mul(2)?;
        Self::complex(&re, &c.conj()?.mul(&a)?.imag()?.asinh()?)
    }

    fn complex_acosh(&self) -> RusTorchResult<Self> {
        let (a, c) = (self.sub(1)?.complex_sqrt()?, self.add(1)?.complex_sqrt()?);
        let re = a.conj()?.mul(&c)?.real()?.asinh()?;
        Self::complex(&re, &a.imag()?.atan2(&c.real()?)?.mul(2)?)
    }

    fn complex_atanh(&self) -> RusTorchResult<Self> {
        let (x, y) = self.parts()?;
        // Odd; the logarithm is exact where its argument is positive.
        let a = x.abs()?;
        let distance = a.rsub(1)?.square()?.add(&y.square()?)?;
        let re = a.mul(4)?.div(&distance)?.log1p()?.mul(0.25)?.copysign(&x)?;
        let across = x.rsub(1)?.mul(&x.add(1)?)?.sub(&y.square()?)?;
        Self::complex(&re, &y.mul(2)?.atan2(&across)?.mul(0.5)?)
    }

    /// `exp(b ln a)` of complex numbers; of 0 to a positive power 0, and 1 to the power of 0.
    pub(super) fn complex_pow(
        &self,
        name: &'static str,
        other: Operand,
        dtype: DType,
    ) -> RusTorchResult<Self> {
        let (a, b) = (self.cast(name, dtype)?, other.to_tensor(name, dtype)?);
        let power = b.mul(&a.complex_log()?)?.exp()?;
        let positive = b.imag()?.eq(0)?.logical_and(&b.real()?.gt(0)?)?;
        let vanishes = a.eq(0)?.logical_and(&positive)?;
        let power = Self::where_(&vanishes, &power.zeros_like()?, &power)?;
        Self::where_(&b.eq(0)?, &power.ones_like()?, &power)
    }
}
