//! Complex numbers: their parts, and functions composed of real ones.

use rustorch_ir::DType;
use rustorch_ir::ops::{Binary, BinaryOp, Custom, UnaryOp};
use rustorch_macros::track_calls;

use crate::Tensor;
use crate::api::math::known::{Known, KnownPower};
use crate::api::promote::Operand;
use crate::error::{RusTorchResult, require};

#[track_calls]
impl Tensor {
    /// Complex conjugate; real numbers are unchanged. A copy, although PyTorch returns a view.
    /// Writing to it is an error while this tensor has a handle.
    ///
    /// # Errors
    /// Never fails.
    #[doc(alias = "conj_physical")]
    pub fn conj(&self) -> RusTorchResult<Self> {
        match self.dtype().is_complex() {
            true => Ok(self.unary("conj", UnaryOp::Conj)?.in_place_of_view(self)),
            false => Ok(self.clone()),
        }
    }

    /// Real part; real numbers are unchanged. A copy, although PyTorch returns a view. Writing to
    /// it is an error while this tensor has a handle.
    ///
    /// # Errors
    /// Never fails.
    pub fn real(&self) -> RusTorchResult<Self> {
        match self.dtype().is_complex() {
            true => Ok(self.unary("real", UnaryOp::Real)?.in_place_of_view(self)),
            false => Ok(self.clone()),
        }
    }

    /// Imaginary part of complex numbers. A copy, although PyTorch returns a view. Writing to it is
    /// an error while this tensor has a handle.
    ///
    /// # Errors
    /// Fails for an unsupported dtype.
    pub fn imag(&self) -> RusTorchResult<Self> {
        Ok(self.unary("imag", UnaryOp::Imag)?.in_place_of_view(self))
    }

    /// The complex numbers `real + imag · i` of two tensors of `f32`, or two of `f64`, which
    /// broadcast.
    ///
    /// # Errors
    /// Fails for unsupported dtypes, or shapes that do not broadcast.
    pub fn complex(real: &Self, imag: &Self) -> RusTorchResult<Self> {
        let op = BinaryOp::Complex;
        Self::apply("complex", Binary { op }, &[real, imag])
    }

    /// Complex numbers from magnitudes and angles, two tensors of `f32` or two of `f64`, which
    /// broadcast.
    ///
    /// # Errors
    /// Fails for unsupported dtypes, or shapes that do not broadcast.
    pub fn polar(length: &Self, angle: &Self) -> RusTorchResult<Self> {
        require(
            "polar",
            length.dtype() == angle.dtype(),
            length.ty(),
            angle.ty(),
        )?;
        Self::complex(&length.mul(&angle.cos()?)?, &length.mul(&angle.sin()?)?)
    }

    /// Real and imaginary parts as a last dimension of size 2. A copy, although PyTorch returns a
    /// view. Writing to it is an error while this tensor has a handle.
    ///
    /// # Errors
    /// Fails for real numbers.
    pub fn view_as_real(&self) -> RusTorchResult<Self> {
        let name = "view_as_real";
        require(
            name,
            self.dtype().is_complex(),
            "complex numbers",
            self.ty(),
        )?;
        Ok(Self::stack(&[&self.real()?, &self.imag()?], -1)?.in_place_of_view(self))
    }

    /// Complex numbers from an `f32` or `f64` tensor whose last dimension, of size 2, holds the
    /// parts. A copy, although PyTorch returns a view. Writing to it is an error while this tensor
    /// has a handle.
    ///
    /// # Errors
    /// Fails for unsupported shapes or dtypes.
    pub fn view_as_complex(&self) -> RusTorchResult<Self> {
        let pairs = self.shape().last() == Some(&2);
        let expected = "a last dimension of size 2";
        require("view_as_complex", pairs, expected, self.ty())?;
        let numbers = Self::complex(&self.select(-1, 0)?, &self.select(-1, 1)?)?;
        Ok(numbers.in_place_of_view(self))
    }

    /// `x / |x|`, and 0 for 0; for real numbers [`Tensor::sign`].
    ///
    /// # Errors
    /// Fails for a dtype that is not numeric.
    pub fn sgn(&self) -> RusTorchResult<Self> {
        if !self.dtype().is_complex() {
            return self.sign();
        }
        let length = self.abs()?;
        let is_zero = length.eq(0)?;
        let divisor = Self::where_(&is_zero, 1.0, &length)?;
        // The slope at 0 is 0.
        let part = |x: Self| Self::where_(&is_zero, 0.0, &x)?.div(&divisor);
        Self::complex(&part(self.real()?)?, &part(self.imag()?)?)
    }

    /// The angle of complex numbers, from −π to π. For real numbers it is 0, π below 0, and NaN for
    /// NaN. Integers as `f32`.
    ///
    /// # Errors
    /// Fails for a block format.
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
            UnaryOp::Log2 => self.complex_log()?.times_real(1.0 / LN_2),
            UnaryOp::Log10 => self.complex_log()?.times_real(1.0 / LN_10),
            UnaryOp::Log1p => self.complex_log1p(),
            UnaryOp::Exp2 => self.times_real(LN_2)?.exp(),
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

    /// `c · z` of a real number, whose product with infinity is not a NaN beside it.
    fn times_real(&self, c: f64) -> RusTorchResult<Self> {
        let (x, y) = self.parts()?;
        Self::complex(&x.mul(c)?, &y.mul(c)?)
    }

    /// `1 - z` and `1 + z`, with the signs of imaginary zeros: these are sides of branch cuts.
    fn beside_one(&self) -> RusTorchResult<[Self; 2]> {
        let (x, y) = self.parts()?;
        let below = Self::complex(&x.rsub(1)?, &y.neg()?)?;
        Ok([below, Self::complex(&x.add(1)?, &y)?])
    }

    /// The elements of `value`, a function of `self` whose derivative is 1 over a divisor. The parts of the function have
    /// kinks on the axes, and so other derivatives.
    fn with_divisor(
        &self,
        value: Self,
        divisor: impl FnOnce() -> RusTorchResult<Self>,
    ) -> RusTorchResult<Self> {
        match self.requires_grad() {
            true => {
                let function = Custom::new(Known::Quotient);
                Self::apply("complex", function, &[self, &value, &divisor()?])
            }
            false => Ok(value),
        }
    }

    fn complex_log(&self) -> RusTorchResult<Self> {
        let at = self.detach();
        let (x, y) = at.parts()?;
        let (a, b) = (x.abs()?, y.abs()?);
        let (large, small) = (a.maximum(&b)?, a.minimum(&b)?);
        // Near 1 the logarithm of the length is that of what its square differs by.
        let square = large.sub(1)?.mul(&large.add(1)?)?.add(&small.square()?)?;
        let near = large.gt(0.5)?.logical_and(&large.lt(2.0)?)?;
        let length = Self::where_(&near, &square.log1p()?.mul(0.5)?, &at.abs()?.log()?)?;
        let log = Self::complex(&length, &y.atan2(&x)?)?;
        self.with_divisor(log, || Ok(self.clone()))
    }

    fn complex_log1p(&self) -> RusTorchResult<Self> {
        let at = self.detach();
        let (x, y) = at.parts()?;
        let square = x.mul(&x.add(2)?)?.add(&y.square()?)?;
        let small = at.abs()?.lt(0.5)?;
        let length = at.add(1)?.complex_log()?.real()?;
        let length = Self::where_(&small, &square.log1p()?.mul(0.5)?, &length)?;
        let log = Self::complex(&length, &y.atan2(&x.add(1)?)?)?;
        self.with_divisor(log, || self.add(1))
    }

    fn complex_expm1(&self) -> RusTorchResult<Self> {
        let (x, y) = self.parts()?;
        let turned = y.mul(0.5)?.sin()?.square()?.mul(2)?;
        let re = x.expm1()?.mul(&y.cos()?)?.sub(&turned)?;
        Self::complex(&re, &x.exp()?.mul(&y.sin()?)?)
    }

    fn complex_sqrt(&self) -> RusTorchResult<Self> {
        let at = self.detach();
        let (x, y) = at.parts()?;
        let root = x.abs()?.add(&at.abs()?)?.mul(0.5)?.sqrt()?;
        let length = y.abs()?;
        let rest = length.div(&root)?.mul(0.5)?;
        let rest = Self::where_(&root.eq(0)?, 0.0, &rest)?;
        let rest = Self::where_(&y.isinf()?, &length, &rest)?;
        let right = x.ge(0)?;
        let re = Self::where_(&right, &root, &rest)?;
        let root = Self::complex(&re, &Self::where_(&right, &rest, &root)?.copysign(&y)?)?;
        self.known("sqrt", Known::Root, root)
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

    /// `√(1 - z)` and `√(1 + z)`.
    fn roots_beside_one(&self) -> RusTorchResult<[Self; 2]> {
        let [a, c] = self.beside_one()?;
        Ok([a.complex_sqrt()?, c.complex_sqrt()?])
    }

    fn complex_asin(&self) -> RusTorchResult<Self> {
        let roots = self.roots_beside_one()?;
        let [a, c] = roots.each_ref().map(Self::detach);
        let re = self.detach().real()?.atan2(&a.mul(&c)?.real()?)?;
        let asin = Self::complex(&re, &a.conj()?.mul(&c)?.imag()?.asinh()?)?;
        self.with_divisor(asin, || roots[0].mul(&roots[1]))
    }

    fn complex_acos(&self) -> RusTorchResult<Self> {
        let roots = self.roots_beside_one()?;
        let [a, c] = roots.each_ref().map(Self::detach);
        let re = a.real()?.atan2(&c.real()?)?.mul(2)?;
        let acos = Self::complex(&re, &c.conj()?.mul(&a)?.imag()?.asinh()?)?;
        self.with_divisor(acos, || roots[0].mul(&roots[1])?.neg())
    }

    fn complex_acosh(&self) -> RusTorchResult<Self> {
        let [_, c] = self.beside_one()?;
        let roots = [self.sub(1)?.complex_sqrt()?, c.complex_sqrt()?];
        let [a, c] = roots.each_ref().map(Self::detach);
        let re = a.conj()?.mul(&c)?.real()?.asinh()?;
        let acosh = Self::complex(&re, &a.imag()?.atan2(&c.real()?)?.mul(2)?)?;
        self.with_divisor(acosh, || roots[0].mul(&roots[1]))
    }

    fn complex_atanh(&self) -> RusTorchResult<Self> {
        let (x, y) = self.detach().parts()?;
        // Odd; the logarithm is exact where its argument is positive.
        let a = x.abs()?;
        let distance = a.rsub(1)?.square()?.add(&y.square()?)?;
        let re = a.mul(4)?.div(&distance)?.log1p()?.mul(0.25)?.copysign(&x)?;
        let across = x.rsub(1)?.mul(&x.add(1)?)?.sub(&y.square()?)?;
        let atanh = Self::complex(&re, &y.mul(2)?.atan2(&across)?.mul(0.5)?)?;
        self.with_divisor(atanh, || {
            let [a, c] = self.beside_one()?;
            a.mul(&c)
        })
    }

    /// `exp(b ln a)` of complex numbers; of 0 to a positive power 0, and 1 to the power of 0.
    pub(super) fn complex_pow(
        &self,
        name: &'static str,
        other: Operand,
        dtype: DType,
    ) -> RusTorchResult<Self> {
        let (a, b) = (self.cast(name, dtype)?, other.to_tensor(name, dtype)?);
        let log = a.complex_log()?;
        let power = b.detach().mul(log.detach())?.exp()?;
        let positive = b.imag()?.eq(0)?.logical_and(&b.real()?.gt(0)?)?;
        let vanishes = a.eq(0)?.logical_and(&positive)?;
        let power = Self::where_(&vanishes, &power.zeros_like()?, &power)?;
        let power = Self::where_(&b.eq(0)?, &power.ones_like()?, &power)?;
        match a.requires_grad() || b.requires_grad() {
            true => Self::apply(name, Custom::new(KnownPower), &[&a, &power, &b, &log]),
            false => Ok(power),
        }
    }
}
