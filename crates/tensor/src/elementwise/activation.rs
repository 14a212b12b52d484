//! Activation functions.

use rustorch_ir::Scalar;
use rustorch_ir::ops::{ActivationKind, BinaryOp};
use rustorch_macros::track_calls;

use super::{composed_methods, float_of, unary_methods};
use crate::Tensor;
use crate::amp::lowered;
use crate::dims::Integer;
use crate::error::{RusTorchResult, require};
use crate::promote::Operand;

unary_methods! {
    "`x / 2 · (1 + erf(x / √2))`. Floats."
    gelu = activation(ActivationKind::Gelu);
    "GELU by its tanh approximation: PyTorch's `approximate='tanh'`. Floats."
    gelu_tanh = activation(ActivationKind::GeluTanh);
}

#[track_calls]
impl Tensor {
    /// `max(x, 0)`. Floats and integers.
    ///
    /// # Errors
    /// A complex dtype or a block format.
    pub fn relu(&self) -> RusTorchResult<Self> {
        match self.dtype().is_int() {
            true => self.binary(
                "relu",
                BinaryOp::Maximum,
                Operand::Scalar(Scalar::Int(0)),
                |d| d,
            ),
            false => self.activation("relu", ActivationKind::Relu),
        }
    }

    /// `1 / (1 + e⁻ˣ)`. Real (integers as `f32`) or complex.
    ///
    /// # Errors
    /// A block format.
    pub fn sigmoid(&self) -> RusTorchResult<Self> {
        match self.dtype().is_complex() {
            true => self.neg()?.exp()?.add(1)?.reciprocal(),
            false => (self.cast("sigmoid", float_of(self.dtype()))?)
                .activation("sigmoid", ActivationKind::Sigmoid),
        }
    }

    /// `x · sigmoid(x)`. Floats and complex numbers.
    ///
    /// # Errors
    /// Another dtype.
    pub fn silu(&self) -> RusTorchResult<Self> {
        match self.dtype().is_complex() {
            true => self.mul(&self.sigmoid()?),
            false => self.activation("silu", ActivationKind::Silu),
        }
    }

    /// `x / (1 + |x|)`. Numbers; integers as `f32`.
    ///
    /// # Errors
    /// A block format.
    pub fn softsign(&self) -> RusTorchResult<Self> {
        self.composed_of_numbers("softsign", |x| x.div(&x.abs()?.add(1)?))
    }

    /// `x - tanh(x)`. Numbers; integers as `f32`.
    ///
    /// # Errors
    /// A block format.
    pub fn tanhshrink(&self) -> RusTorchResult<Self> {
        self.composed_of_numbers("tanhshrink", |x| x.sub(&x.tanh()?))
    }

    /// `x`, or below 0 `x` times a slope: in training one drawn evenly between the bounds for each
    /// element, from the [default generator](crate::default_generator), else the mean of the bounds.
    /// Real; integers as `f32`.
    ///
    /// # Errors
    /// A dtype other than of real numbers; `lower` above `upper`; bounds that are not finite.
    pub fn rrelu(&self, lower: f64, upper: f64, training: bool) -> RusTorchResult<Self> {
        const NAME: &str = "rrelu";
        let got = format_args!("{lower} and {upper}");
        let legal = lower <= upper && lower.is_finite() && upper.is_finite();
        require(NAME, legal, "finite bounds, lower up to upper", got)?;
        self.composed(NAME, |x| {
            let sloped = match training && lower < upper {
                true => x.mul(&Self::uniform(lower, upper, x.shape(), x.dtype())?)?,
                false => x.mul(0.5 * (lower + upper))?,
            };
            Self::where_(&x.ge(0)?, x, &sloped)
        })
    }

    /// `self` where that is positive, else `weight · self`: `weight` is one number, or one for each
    /// index of dimension 1 (of dimension 0 where there is no other), of `self`'s dtype. Floats.
    ///
    /// # Errors
    /// Shapes or dtypes other than these.
    pub fn prelu(&self, weight: &Self) -> RusTorchResult<Self> {
        const NAME: &str = "prelu";
        self.require_float(NAME)?;
        let [x, weight] = &lowered(NAME, [self, weight])?;
        let (x, weight) = (&**x, &**weight);
        require(NAME, weight.dtype() == x.dtype(), x.dtype(), weight.ty())?;
        let mut shape = vec![1; self.rank()];
        if weight.numel() != 1 {
            let channel = usize::from(self.rank() > 1);
            let expected = format_args!("one weight, or one for each channel of {}", self.ty());
            let fits = weight.rank() == 1 && self.shape().get(channel) == Some(&weight.numel());
            require(NAME, fits, expected, weight.ty())?;
            shape[channel] = weight.numel();
        }
        let weight = weight.reshape(shape)?;
        Self::where_(&x.gt(0)?, x, &x.mul(&weight)?)
    }

    /// The first half along `dim` times the sigmoid of the second. Floats.
    ///
    /// # Errors
    /// Another dtype; no such dimension, or one of odd size.
    pub fn glu(&self, dim: impl Integer) -> RusTorchResult<Self> {
        const NAME: &str = "glu";
        self.require_float(NAME)?;
        let size = self.shape()[self.dim(NAME, dim)?];
        require(
            NAME,
            size.is_multiple_of(2),
            "a dimension of even size",
            self.ty(),
        )?;
        let [a, b] = [0, size / 2].map(|start| self.narrow(dim, start, size / 2));
        let (a, b) = (a?, b?);
        a.composed(NAME, |a| a.mul(&b.cast(NAME, a.dtype())?.sigmoid()?))
    }

    /// `value` where `self` is no larger than `threshold`, else `self`. Real numbers.
    ///
    /// # Errors
    /// A complex dtype or a block format; numbers out of the dtype's range.
    pub fn threshold(&self, threshold: f64, value: f64) -> RusTorchResult<Self> {
        const NAME: &str = "threshold";
        let (threshold, value) = (self.bound(NAME, threshold)?, self.bound(NAME, value)?);
        Self::where_(&self.le(&threshold)?, &value, self)
    }

    /// `min(max(x, low), high)`. Real numbers.
    ///
    /// # Errors
    /// A dtype without order; `low` above `high`; bounds out of the dtype's range.
    pub fn hardtanh(&self, low: f64, high: f64) -> RusTorchResult<Self> {
        const NAME: &str = "hardtanh";
        // A bound that is NaN makes all of it NaN.
        let is_empty = low > high;
        require(
            NAME,
            !is_empty,
            "low up to high",
            format!("{low} and {high}"),
        )?;
        let cut = |x: f64| if self.dtype().is_int() { x.trunc() } else { x };
        let (low, high) = (self.bound(NAME, cut(low))?, self.bound(NAME, cut(high))?);
        self.binary(NAME, BinaryOp::Maximum, (&low).into(), |d| d)?
            .binary(NAME, BinaryOp::Minimum, (&high).into(), |d| d)
    }

    /// `min(max(x, 0), 6)`. Real numbers.
    ///
    /// # Errors
    /// A dtype without order.
    pub fn relu6(&self) -> RusTorchResult<Self> {
        self.hardtanh(0.0, 6.0)
    }

    /// `x`, or `alpha · (exp(x / alpha) - 1)` below 0. Real; integers as `f32`.
    ///
    /// # Errors
    /// A dtype other than of real numbers; an `alpha` of 0.
    pub fn celu(&self, alpha: f64) -> RusTorchResult<Self> {
        const NAME: &str = "celu";
        require(NAME, alpha != 0.0, "an alpha other than 0", alpha)?;
        self.composed(NAME, |x| {
            Self::where_(&x.gt(0)?, x, &x.div(alpha)?.expm1()?.mul(alpha)?)
        })
    }

    /// 0 from `-lambda` to `lambda`, outside `x` nearer to 0 by `lambda`. Floats.
    ///
    /// # Errors
    /// Another dtype; a `lambda` that is negative or not finite.
    pub fn softshrink(&self, lambda: f64) -> RusTorchResult<Self> {
        const NAME: &str = "softshrink";
        self.require_float(NAME)?;
        let legal = lambda >= 0.0 && lambda.is_finite();
        require(NAME, legal, "a finite lambda from 0 on", lambda)?;
        self.composed(NAME, |x| {
            let nearer = x.abs()?.sub(lambda)?.clamp_min(0.0)?;
            Self::where_(&nearer.eq(0)?, 0.0, &nearer.copysign(x)?)
        })
    }
}

composed_methods! {
    "`x`, or `alpha · (eˣ - 1)` below 0."
    elu(alpha: f64) = |x| Tensor::where_(&x.gt(0)?, x, &x.expm1()?.mul(alpha)?);
    "`1.0507 x`, or `1.7581 (eˣ - 1)` below 0 (Klambauer et al. 2017, arXiv 1706.02515)."
    selu() = |x| {
        let (scale, alpha) = (1.050_700_987_355_480_5, 1.673_263_242_354_377_2);
        Tensor::where_(&x.gt(0)?, &x.mul(scale)?, &x.expm1()?.mul(alpha * scale)?)
    };
    "`x`, or `slope · x` below 0."
    leaky_relu(slope: f64) = |x| Tensor::where_(&x.gt(0)?, x, &x.mul(slope)?);
    "`ln(1 + exp(beta x)) / beta`, or `x` where `beta x` is above `threshold`."
    softplus(beta: f64, threshold: f64) = |x| {
        let scaled = x.mul(beta)?;
        let soft = scaled.exp()?.log1p()?.div(beta)?;
        Tensor::where_(&scaled.gt(threshold)?, x, &soft)
    };
    "`min(max(x + 3, 0), 6) / 6`."
    hardsigmoid() = |x| x.add(3)?.clamp(0, 6)?.div(6);
    "`x · min(max(x + 3, 0), 6) / 6`."
    hardswish() = |x| {
        // From 3 on it is x itself, whose slope at 3 is 1, as in PyTorch.
        let low = x.clamp_max(3)?;
        let bent = low.mul(&low.add(3)?.clamp_min(0)?)?.div(6)?;
        Tensor::where_(&x.lt(3)?, &bent, x)
    };
    "0 from `-lambda` to `lambda`, `x` outside."
    hardshrink(lambda: f64) = |x| Tensor::where_(&x.abs()?.le(lambda)?, 0.0, x);
    "`x · tanh(ln(1 + eˣ))`."
    mish() = |x| {
        // Without overflow.
        let soft = x.abs()?.neg()?.exp()?.log1p()?.add(&x.clamp_min(0)?)?;
        x.mul(&soft.tanh()?)
    };
    "`ln(sigmoid(x))`, computed without overflow."
    logsigmoid() = |x| x.clamp_max(0)?.sub(&x.abs()?.neg()?.exp()?.log1p()?);
}
