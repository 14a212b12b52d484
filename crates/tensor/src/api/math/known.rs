//! Results whose gradients are formulas of the results themselves.
//!
//! The gradients of the parts would overflow, or be differences of infinities, where the exact
//! gradient is finite.

use std::borrow::Cow;

use rustorch_ir::autodiff::{Cotangents, Differentiated};
use rustorch_ir::ops::{BinaryOp, CompareOp, Composite, Custom, UnaryOp};
use rustorch_ir::{Graph, OpError, OpType, Results, Shape, ValueId};

use crate::Tensor;
use crate::error::RusTorchResult;

/// A function whose derivative is known.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Known {
    /// `-x ln x`.
    Entropy,
    /// The logistic function of `x`.
    Sigmoid,
    /// `x (1 - x)` of `x`, which is a logistic function.
    SigmoidSlope,
    /// The norm of the real numbers `x`.
    Norm(KnownNorm),
    /// The square root of complex numbers.
    Root,
    /// A function whose derivative is 1 over a third operand.
    Quotient,
}

/// Complex numbers to a power. Operands are the numbers, the results, the exponents and the numbers' logarithms.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct KnownPower;

/// A norm of real numbers.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct KnownNorm {
    order: u64,
    /// The shape of the norms, if the dimensions are kept.
    kept: Shape,
}

impl Tensor {
    /// This tensor without a gradient. It is another one only if it has one.
    pub(crate) fn untracked(&self) -> Cow<'_, Self> {
        match self.is_tracked() {
            true => Cow::Owned(self.detach()),
            false => Cow::Borrowed(self),
        }
    }

    /// The elements of `value`, the result of a function of `self`, with the gradient of that function.
    pub(crate) fn known(
        &self,
        name: &'static str,
        function: Known,
        value: Self,
    ) -> RusTorchResult<Self> {
        match self.requires_grad() {
            true => Self::apply(name, Custom::new(function), &[self, &value.detach()]),
            false => Ok(value),
        }
    }
}

impl KnownNorm {
    /// The norm of this order, whose results have the shape `kept` where dimensions are kept.
    pub(crate) fn new(order: f64, kept: Shape) -> Self {
        Self {
            order: order.to_bits(),
            kept,
        }
    }

    /// The derivative `± (|x| / ‖x‖)^(p - 1)`, and 0 where the norm is 0. Ratios do not overflow.
    fn slope(&self, g: &mut Graph, x: ValueId, norm: ValueId) -> Result<ValueId, OpError> {
        let dtype = g.ty(x).dtype;
        let (zero, one) = (g.constant(0.0, dtype)?, g.constant(1.0, dtype)?);
        let norm = g.reshape(norm, self.kept.clone())?;
        let is_none = g.compare(CompareOp::Eq, norm, zero)?;
        let divisor = g.select(is_none, one, norm)?;
        let ratio = g.div(x, divisor)?;
        let order = f64::from_bits(self.order);
        let slope = match order == 2.0 {
            true => ratio,
            false => {
                // Powers of 0 and of infinity are 0 or infinite, and have infinite derivatives.
                let end = g.constant(if order > 1.0 { 0.0 } else { f64::INFINITY }, dtype)?;
                let size = g.unary(UnaryOp::Abs, ratio)?;
                let is_zero = g.compare(CompareOp::Eq, x, zero)?;
                let is_end = g.compare(CompareOp::Eq, size, end)?;
                let is_flat = g.binary(BinaryOp::Or, is_zero, is_end)?;
                let [inside, divisor] = [x, divisor].map(|part| g.select(is_flat, one, part));
                let ratio = g.div(inside?, divisor?)?;
                let base = g.unary(UnaryOp::Abs, ratio)?;
                let less = g.constant(order - 1.0, dtype)?;
                let power = g.binary(BinaryOp::Pow, base, less)?;
                let sign = g.unary(UnaryOp::Sign, x)?;
                let slope = g.mul(sign, power)?;
                g.select(is_flat, zero, slope)?
            }
        };
        g.select(is_none, zero, slope)
    }
}

impl Known {
    /// The gradient of `x` from `ct`, that of the result `y`.
    fn gradient(
        &self,
        g: &mut Graph,
        x: ValueId,
        y: ValueId,
        ct: ValueId,
    ) -> Result<ValueId, OpError> {
        let slope = match self {
            Self::Entropy => {
                let log = g.unary(UnaryOp::Log, x)?;
                let sum = g.add_scalar(log, 1.0)?;
                g.neg(sum)?
            }
            Self::Sigmoid => {
                let slope = sigmoid_slope(g, y)?;
                g.push(Custom::new(Self::SigmoidSlope), &[y, slope])?
            }
            Self::SigmoidSlope => {
                let twice = g.mul_scalar(x, -2.0)?;
                g.add_scalar(twice, 1.0)?
            }
            Self::Norm(norm) => {
                let slope = norm.slope(g, x, y)?;
                let ct = g.reshape(ct, norm.kept.clone())?;
                return g.mul(ct, slope);
            }
            Self::Root => {
                let twice = g.mul_scalar(y, 2.0)?;
                return over(g, ct, twice);
            }
            Self::Quotient => return over(g, ct, x),
        };
        g.mul(ct, slope)
    }
}

/// The gradient by way of a derivative of 1 over `divisor`.
fn over(g: &mut Graph, ct: ValueId, divisor: ValueId) -> Result<ValueId, OpError> {
    let divisor = g.conj(divisor)?;
    g.div(ct, divisor)
}

/// A derivative of a power, by its numbers, exponents and logarithms, and by the power.
type Slope = fn(&mut Graph, [ValueId; 3], ValueId) -> Result<ValueId, OpError>;

/// The derivative of `y = aᵇ` by `a`, `b aᵇ⁻¹`: 0 for an exponent of 0, also for `a = 0`.
fn power_slope(g: &mut Graph, [a, b, log]: [ValueId; 3], y: ValueId) -> Result<ValueId, OpError> {
    let dtype = g.ty(a).dtype;
    let [zero, one] = [0.0, 1.0].map(|x| g.constant(x, dtype));
    let (zero, one) = (zero?, one?);
    // For an exponent of 0 any other number has the same derivatives, and none that are infinite.
    let is_none = g.compare(CompareOp::Eq, b, zero)?;
    let (a, log) = (g.select(is_none, one, a)?, g.select(is_none, zero, log)?);
    let less = g.add_scalar(b, -1.0)?;
    // Powers of 0 are 0 or 1, unless the exponent is below 0.
    let is_zero = g.compare(CompareOp::Eq, a, zero)?;
    let (size, none) = (g.real(less)?, g.real(zero)?);
    let is_finite = g.compare(CompareOp::Ge, size, none)?;
    let is_level = g.binary(BinaryOp::And, is_zero, is_finite)?;
    let divisor = g.select(is_level, one, a)?;
    let power = g.div(y, divisor)?;
    let is_first = g.compare(CompareOp::Eq, less, zero)?;
    let is_one = g.binary(BinaryOp::And, is_zero, is_first)?;
    let power = g.select(is_one, one, power)?;
    let power = g.push(Custom::new(KnownPower), &[a, power, less, log])?;
    let slope = g.mul(b, power)?;
    g.select(is_none, zero, slope)
}

/// The derivative of `y = aᵇ` by `b`, `y ln a`: 0 where a power of 0 stays 0 or 1.
fn exponent_slope(
    g: &mut Graph,
    [a, b, log]: [ValueId; 3],
    y: ValueId,
) -> Result<ValueId, OpError> {
    let zero = g.constant(0.0, g.ty(a).dtype)?;
    let is_zero = g.compare(CompareOp::Eq, a, zero)?;
    let (size, none) = (g.real(b)?, g.real(zero)?);
    let is_finite = g.compare(CompareOp::Ge, size, none)?;
    let is_level = g.binary(BinaryOp::And, is_zero, is_finite)?;
    let slope = g.mul(y, log)?;
    g.select(is_level, zero, slope)
}

/// `x (1 - x)`.
fn sigmoid_slope(g: &mut Graph, x: ValueId) -> Result<ValueId, OpError> {
    let minus = g.neg(x)?;
    let rest = g.add_scalar(minus, 1.0)?;
    g.mul(x, rest)
}

impl Composite for Known {
    fn name(&self) -> &'static str {
        "known"
    }

    fn decompose(&self, g: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError> {
        let shape = g.ty(inputs[1]).shape.clone();
        Ok([g.reshape(inputs[1], shape)?].into_iter().collect())
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        let ct = node.cotangent(g, 0)?;
        let x = match self {
            Self::Quotient => node.inputs[2],
            _ => node.inputs[0],
        };
        let gradient = self.gradient(g, x, node.results[0], ct)?;
        // The value and a divisor have no gradient of their own.
        let others = node.inputs[1..].iter().map(|_| None);
        Ok([Some(gradient)].into_iter().chain(others).collect())
    }

    fn op_type(&self) -> Option<OpType> {
        None
    }
}

impl Composite for KnownPower {
    fn name(&self) -> &'static str {
        "known_power"
    }

    fn decompose(&self, g: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError> {
        let shape = g.ty(inputs[1]).shape.clone();
        Ok([g.reshape(inputs[1], shape)?].into_iter().collect())
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        let (ct, y) = (node.cotangent(g, 0)?, node.results[0]);
        let [a, b, log] = [0, 2, 3].map(|i| node.inputs[i]);
        let mut gradients: Cotangents = node.inputs.iter().map(|_| None).collect();
        let slopes: [(usize, Slope); 2] = [(0, power_slope), (2, exponent_slope)];
        for (i, slope_of) in slopes {
            if node.needed[i] {
                let slope = slope_of(g, [a, b, log], y)?;
                let slope = g.conj(slope)?;
                gradients[i] = Some(g.mul(ct, slope)?);
            }
        }
        Ok(gradients)
    }

    fn op_type(&self) -> Option<OpType> {
        None
    }
}
