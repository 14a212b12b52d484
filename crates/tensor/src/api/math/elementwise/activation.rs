//! Activation functions.

use rustorch_ir::ops::{ActivationKind, BinaryOp};
use rustorch_ir::{DType, Scalar};
use rustorch_macros::track_calls;

use super::{composed_methods, compute_dtype, float_of, unary_methods};
use crate::Tensor;
use crate::api::amp::lowered;
use crate::api::math::known::Known;
use crate::api::promote::Operand;
use crate::args::dims::Integer;
use crate::args::numbers::{Side, beside_elements, require_held, require_inside};
use crate::error::{RusTorchResult, require};

unary_methods! {
    "`x / 2 · (1 + erf(x / √2))`. Takes floats."
    gelu = activation(ActivationKind::Gelu);
    "GELU by its tanh approximation: PyTorch's `approximate='tanh'`. Takes floats."
    gelu_tanh = activation(ActivationKind::GeluTanh);
}

#[track_calls]
impl Tensor {
    /// `max(x, 0)`. Takes floats and integers.
    ///
    /// # Errors
    /// Fails for a complex dtype or a block format.
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

    /// `1 / (1 + e⁻ˣ)`. Takes real numbers (integers become `f32`) and complex ones.
    ///
    /// # Errors
    /// Fails for a block format.
    #[doc(alias = "expit")]
    pub fn sigmoid(&self) -> RusTorchResult<Self> {
        match self.dtype().is_complex() {
            true => self.neg()?.exp()?.add(1)?.reciprocal(),
            false => (self.cast("sigmoid", float_of(self.dtype()))?)
                .activation("sigmoid", ActivationKind::Sigmoid),
        }
    }

    /// `x · sigmoid(x)`. Takes floats and complex numbers.
    ///
    /// # Errors
    /// Fails for an unsupported dtype.
    pub fn silu(&self) -> RusTorchResult<Self> {
        match self.dtype().is_complex() {
            true => self.mul(&self.sigmoid()?),
            false => self.activation("silu", ActivationKind::Silu),
        }
    }

    /// `x / (1 + |x|)`. Takes numbers; integers become `f32`.
    ///
    /// # Errors
    /// Fails for a block format.
    pub fn softsign(&self) -> RusTorchResult<Self> {
        self.composed_of_numbers("softsign", |x| x.div(&x.abs()?.add(1)?))
    }

    /// `x - tanh(x)`. Takes numbers; integers become `f32`.
    ///
    /// # Errors
    /// Fails for a block format.
    pub fn tanhshrink(&self) -> RusTorchResult<Self> {
        self.composed_of_numbers("tanhshrink", |x| x.sub(&x.tanh()?))
    }

    /// `x`, or the slope times `x` below 0. In training each element has a random slope between the
    /// bounds, else the slope is their mean. Random numbers are those of the
    /// [default generator](crate::default_generator). Takes real numbers; integers become `f32`.
    ///
    /// # Errors
    /// Fails for a dtype that is not real, `lower` above `upper`, or bounds that are not finite.
    pub fn rrelu(&self, lower: f64, upper: f64, training: bool) -> RusTorchResult<Self> {
        const NAME: &str = "rrelu";
        let got = format_args!("{lower} and {upper}");
        let legal = lower <= upper && lower.is_finite() && upper.is_finite();
        require(NAME, legal, "finite bounds, lower up to upper", got)?;
        self.require_parameter(NAME, upper)?;
        self.composed(NAME, |x| {
            let sloped = match training && lower < upper {
                true => x.mul(&Self::uniform(lower, upper, x.shape(), x.dtype())?)?,
                false => x.mul(0.5 * (lower + upper))?,
            };
            Self::where_(&x.gt(0)?, x, &sloped)
        })
    }

    /// `self` if it is positive, else `weight · self`. `weight` is one number of `self`'s dtype, or
    /// one for each index of dimension 1. A vector has one for each index of dimension 0. Takes
    /// floats.
    ///
    /// # Errors
    /// Fails for unsupported shapes or dtypes.
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
        let above = x.gt(0)?;
        let below = Self::where_(&above, 0.0, x)?;
        Self::where_(&above, x, &below.mul(&weight)?)
    }

    /// The first half along `dim` times the sigmoid of the second. Takes floats.
    ///
    /// # Errors
    /// Fails for an unsupported dtype, or for a dimension that does not exist or has an odd size.
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
        a.composed(NAME, |a| {
            let b = b.cast(NAME, a.dtype())?;
            a.mul(&b.known(NAME, Known::Sigmoid, b.detach().sigmoid()?)?)
        })
    }

    /// `value` if `self` is at most `threshold`, else `self`. Takes real numbers.
    ///
    /// # Errors
    /// Fails for a complex dtype or a block format, or numbers out of the dtype's range.
    pub fn threshold(&self, threshold: f64, value: f64) -> RusTorchResult<Self> {
        const NAME: &str = "threshold";
        let dtype = self.dtype();
        let [threshold, value] = [threshold, value].map(|x| beside_elements(x, dtype));
        require_held(NAME, threshold, compute_dtype(dtype))?;
        let threshold = Self::number(NAME, threshold, dtype, None)?;
        let value = Operand::Scalar(value).as_element(NAME, dtype)?;
        Self::where_(&self.le(&threshold)?, &value, self)
    }

    /// `min(max(x, low), high)`. Takes real numbers.
    ///
    /// # Errors
    /// Fails for a dtype without order, or if `low` is above `high`. Also fails for a bound that
    /// the dtype cannot hold.
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
        let dtype = self.dtype();
        let bound = |x: f64, side| {
            let bound = match dtype.is_int() {
                // Like PyTorch, which cuts bounds of integers to `i64`.
                true => beside_elements(x.trunc(), DType::I64),
                false => x.into(),
            };
            if dtype.is_int() {
                require_inside(NAME, bound, DType::I64)?;
            }
            Operand::Scalar(bound).as_bound(NAME, dtype, side)
        };
        let (low, high) = (bound(low, Side::Lower)?, bound(high, Side::Upper)?);
        let y = self
            .binary(NAME, BinaryOp::Maximum, (&*low).into(), |d| d)?
            .binary(NAME, BinaryOp::Minimum, (&*high).into(), |d| d)?;
        // NaN is not outside.
        self.kept_inside(&y, |x| {
            x.le(&*low)?.logical_or(&x.ge(&*high)?)?.logical_not()
        })
    }

    /// `min(max(x, 0), 6)`. Takes real numbers.
    ///
    /// # Errors
    /// Fails for a dtype without order.
    pub fn relu6(&self) -> RusTorchResult<Self> {
        self.hardtanh(0.0, 6.0)
    }

    /// `x`, or `alpha · (exp(x / alpha) - 1)` below 0. Takes real numbers; integers become `f32`.
    ///
    /// # Errors
    /// Fails for a dtype that is not real, or an `alpha` of 0.
    pub fn celu(&self, alpha: f64) -> RusTorchResult<Self> {
        const NAME: &str = "celu";
        require(NAME, alpha != 0.0, "an alpha other than 0", alpha)?;
        self.require_parameter(NAME, alpha)?;
        self.composed(NAME, |x| {
            x.bent_below([1.0; 2], |x| x.div(alpha)?.expm1()?.mul(alpha))
        })
    }

    /// 0 from `-lambda` to `lambda`; outside, `x` moved towards 0 by `lambda`. Takes floats.
    ///
    /// # Errors
    /// Fails for an unsupported dtype, or a `lambda` that is negative or not finite.
    pub fn softshrink(&self, lambda: f64) -> RusTorchResult<Self> {
        const NAME: &str = "softshrink";
        self.require_float(NAME)?;
        let legal = lambda >= 0.0 && lambda.is_finite();
        require(NAME, legal, "a finite lambda from 0 on", lambda)?;
        require_held(NAME, lambda.into(), self.dtype())?;
        self.composed(NAME, |x| {
            let above = Self::where_(&x.gt(lambda)?, &x.sub(lambda)?, x)?;
            let outside = Self::where_(&x.lt(-lambda)?, &x.add(lambda)?, &above)?;
            Self::where_(&x.abs()?.le(lambda)?, 0.0, &outside)
        })
    }

    /// 0 from `-lambda` to `lambda`, `x` outside. Takes real numbers; integers become `f32`.
    ///
    /// # Errors
    /// Fails for a dtype that is not real, or a `lambda` that the dtype does not hold.
    pub fn hardshrink(&self, lambda: f64) -> RusTorchResult<Self> {
        const NAME: &str = "hardshrink";
        require_held(NAME, lambda.into(), float_of(self.dtype()))?;
        self.composed(NAME, |x| Self::where_(&x.abs()?.le(lambda)?, 0.0, x))
    }

    /// Results of `f` below 0, and of a line with the second slope above. The slope at 0 is the first, as PyTorch has
    /// it.
    fn bent_below(
        &self,
        [at_zero, above]: [f64; 2],
        f: impl FnOnce(&Self) -> RusTorchResult<Self>,
    ) -> RusTorchResult<Self> {
        let is_below = self.lt(0)?;
        // Elsewhere `f` is of 0: an infinite slope would make NaN of a gradient that does not count.
        let bent = f(&Self::where_(&is_below, self, 0.0)?)?;
        let line = match (at_zero == above, above == 1.0) {
            (true, true) => self.clone(),
            (true, false) => self.mul(above)?,
            (false, _) => {
                let above = Self::scalar(above, self.dtype())?;
                self.mul(&Self::where_(&self.eq(0)?, at_zero, &above)?)?
            }
        };
        Self::where_(&is_below, &bent, &line)
    }

    /// `ln(1 + eˣ)`, computed without overflow.
    pub(crate) fn log1p_exp(&self) -> RusTorchResult<Self> {
        // Not by |x|, which has no slope at 0: that of the whole has one.
        let above = self.gt(0)?;
        let rest = Self::where_(&above, &self.neg()?, self)?.exp()?.log1p()?;
        Self::where_(&above, self, 0.0)?.add(&rest)
    }
}

composed_methods! {
    "`x`, or `alpha · (eˣ - 1)` below 0."
    elu(alpha: f64) = |x| x.bent_below([alpha, 1.0], |x| x.expm1()?.mul(alpha));
    "`1.0507 x`, or `1.7581 (eˣ - 1)` below 0 (Klambauer et al. 2017, arXiv 1706.02515)."
    selu() = |x| {
        let (scale, alpha) = (1.050_700_987_355_480_5, 1.673_263_242_354_377_2);
        x.bent_below([alpha * scale, scale], |x| x.expm1()?.mul(alpha * scale))
    };
    "`x`, or `slope · x` below 0."
    leaky_relu(slope: f64) = |x| Tensor::where_(&x.gt(0)?, x, &x.mul(slope)?);
    "`ln(1 + exp(beta x)) / beta`, or `x` where `beta x` is above `threshold`."
    softplus(beta: f64, threshold: f64) = |x| {
        let scaled = x.mul(beta)?;
        Tensor::where_(&scaled.gt(threshold)?, x, &scaled.log1p_exp()?.div(beta)?)
    };
    "`min(max(x + 3, 0), 6) / 6`."
    hardsigmoid() = |x| x.clamp(-3, 3)?.add(3)?.div(6);
    "`x · min(max(x + 3, 0), 6) / 6`."
    hardswish() = |x| {
        // At the ends it is as beyond them, as in PyTorch.
        let bends = x.abs()?.lt(3)?;
        let inside = Tensor::where_(&bends, x, 0.0)?;
        let bent = inside.mul(&inside.add(3)?)?.div(6)?;
        let beyond = Tensor::where_(&x.le(-3)?, &x.mul(0)?, x)?;
        Tensor::where_(&bends, &bent, &beyond)
    };
    "`x · tanh(ln(1 + eˣ))`."
    mish() = |x| {
        // Beyond, it is x but for what is far below the last digit.
        const STRAIGHT: f64 = 30.0;
        let is_straight = x.gt(STRAIGHT)?;
        let bent = Tensor::where_(&is_straight, 0.0, x)?;
        Tensor::where_(&is_straight, x, &bent.mul(&bent.log1p_exp()?.tanh()?)?)
    };
    "`ln(sigmoid(x))`, computed without overflow."
    logsigmoid() = |x| x.neg()?.log1p_exp()?.neg();
}
