//! Results whose gradients are formulas of the results themselves.
//!
//! The gradients of the parts would overflow, or be differences of infinities, where the exact
//! gradient is finite.

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

/// A norm of real numbers.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct KnownNorm {
    order: u64,
    /// The shape of the norms, if the dimensions are kept.
    kept: Shape,
}

impl Tensor {
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
