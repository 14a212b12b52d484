//! Activations.

use rustorch_macros::track_calls;
use rustorch_tensor::{RusTorchResult, Tensor};

use super::layers::layers;
use super::{Forward, Module, Training, parameter};

/// Variant of [`GELU`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum GeluApproximate {
    /// The exact form, with the error function.
    #[default]
    None,
    /// The approximation with the hyperbolic tangent.
    Tanh,
}

impl rustorch_tensor::Converted for GeluApproximate {}

layers! {
    /// `max(x, 0)`.
    ReLU => |x| x.relu();
    /// `min(max(x, 0), 6)`.
    ReLU6 => |x| x.relu6();
    /// `1 / (1 + e⁻ˣ)`.
    Sigmoid => |x| x.sigmoid();
    /// `ln(sigmoid(x))`.
    LogSigmoid => |x| x.logsigmoid();
    /// `x · sigmoid(x)`.
    SiLU => |x| x.silu();
    /// `x · tanh(ln(1 + eˣ))`.
    Mish => |x| x.mish();
    /// `tanh(x)`.
    Tanh => |x| x.tanh();
    /// `x - tanh(x)`.
    Tanhshrink => |x| x.tanhshrink();
    /// `x / (1 + |x|)`.
    Softsign => |x| x.softsign();
    /// `1.0507 x`, or `1.7581 (eˣ - 1)` below 0.
    SELU => |x| x.selu();
    /// `min(max(x + 3, 0), 6) / 6`.
    Hardsigmoid => |x| x.hardsigmoid();
    /// `x · min(max(x + 3, 0), 6) / 6`.
    Hardswish => |x| x.hardswish();
    /// Softmax along the channels of `[n, c, h, w]` or `[c, h, w]`.
    Softmax2d => |x| {
        let fits = matches!(x.rank(), 3 | 4);
        crate::error::require("Softmax2d", fits, "a tensor [n, c, h, w] or [c, h, w]", x.rank())?;
        x.softmax(-3)
    };
}

layers! {
    /// `x`, or `alpha · (eˣ - 1)` below 0.
    ELU {
        /// The negated limit of negative values.
        alpha: f64 = 1.0,
    } => |x| x.elu(alpha);
    /// `x`, or `alpha · (exp(x / alpha) - 1)` below 0.
    CELU {
        /// The negated limit of negative values.
        alpha: f64 = 1.0,
    } => |x| x.celu(alpha);
    /// `x · Φ(x)`.
    GELU {
        /// Formula of the function.
        approximate: GeluApproximate = GeluApproximate::None,
    } => |x| match approximate {
        GeluApproximate::None => x.gelu(),
        GeluApproximate::Tanh => x.gelu_tanh(),
    };
    /// The first half along a dimension times the sigmoid of the second.
    GLU {
        /// The dimension.
        dim: isize = -1,
    } => |x| x.glu(dim);
    /// 0 from `-lambda` to `lambda`, `x` outside.
    Hardshrink {
        /// The bound.
        lambda: f64 = 0.5,
    } => |x| x.hardshrink(lambda);
    /// 0 from `-lambda` to `lambda`; outside, `x` moved towards 0 by `lambda`.
    Softshrink {
        /// The bound.
        lambda: f64 = 0.5,
    } => |x| x.softshrink(lambda);
    /// `min(max(x, min_val), max_val)`.
    Hardtanh {
        /// The smallest result.
        min_val: f64 = -1.0,
        /// The largest result.
        max_val: f64 = 1.0,
    } => |x| x.hardtanh(min_val, max_val);
    /// `x`, or `negative_slope · x` below 0.
    LeakyReLU {
        /// The slope below 0.
        negative_slope: f64 = 0.01,
    } => |x| x.leaky_relu(negative_slope);
    /// `ln(1 + exp(beta x)) / beta`, or `x` where `beta x` is above `threshold`.
    Softplus {
        /// Sharpness of the bend.
        beta: f64 = 1.0,
        /// From where on it is the identity.
        threshold: f64 = 20.0,
    } => |x| x.softplus(beta, threshold);
}

layers! {
    /// `value` if `x` is at most `threshold`, else `x`.
    Threshold(
        /// The bound.
        threshold: f64,
        /// The value put there.
        value: f64,
    ) => |x| x.threshold(threshold, value);
    /// `exp(x) / Σ exp(x)` along a dimension.
    Softmax(
        /// The dimension.
        dim: isize,
    ) => |x| x.softmax(dim);
    /// `exp(-x) / Σ exp(-x)` along a dimension.
    Softmin(
        /// The dimension.
        dim: isize,
    ) => |x| x.softmin(dim);
    /// `log(softmax(x))` along a dimension.
    LogSoftmax(
        /// The dimension.
        dim: isize,
    ) => |x| x.log_softmax(dim);
}

/// `x`, or `slope · x` below 0. In training the slope is drawn from `[lower, upper)`, else it is
/// their mean.
#[derive(Debug, Module)]
pub struct RReLU {
    /// The smallest slope.
    #[module(skip)]
    pub lower: f64,
    /// The largest slope.
    #[module(skip)]
    pub upper: f64,
    /// Whether the module is in training mode, so that slopes are drawn.
    pub training: Training,
}

impl Default for RReLU {
    fn default() -> Self {
        Self {
            lower: 1.0 / 8.0,
            upper: 1.0 / 3.0,
            training: Training::default(),
        }
    }
}

#[track_calls(RReLU)]
impl Forward for RReLU {
    fn forward(&self, x: &Tensor) -> RusTorchResult<Tensor> {
        x.rrelu(self.lower, self.upper, self.training.is_on())
    }
}

/// `x`, or `weight · x` below 0, with one weight for all, or one for each channel.
#[derive(Module)]
pub struct PReLU {
    /// `[1]` or `[c]`.
    pub weight: Tensor,
}

#[track_calls(PReLU)]
impl PReLU {
    /// A layer with this number of weights, which begin as 0.25.
    ///
    /// # Errors
    /// Fails for sizes too large for memory.
    pub fn new(num_parameters: usize) -> RusTorchResult<Self> {
        let weight = Tensor::full(num_parameters, 0.25, rustorch_ir::DType::F32)?;
        Ok(Self {
            weight: parameter(weight)?,
        })
    }
}

#[track_calls(PReLU)]
impl Forward for PReLU {
    fn forward(&self, x: &Tensor) -> RusTorchResult<Tensor> {
        x.prelu(&self.weight)
    }
}
