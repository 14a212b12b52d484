use smallvec::smallvec;

use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{Case, CaseOperand, Fill, elementwise};
use crate::ops::BinaryOp;
use crate::ops::*;
use crate::{Graph, Named, OpDef, OpType, ResultTypes, Results, ValueId};

/// An activation function of each element of a floating-point tensor.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Activation {
    /// The function.
    pub kind: ActivationKind,
}

/// The factor of the cube in the hyperbolic tangent's argument in [`ActivationKind::GeluTanh`].
const CUBIC: f64 = 0.044715;

/// Activation functions, as PyTorch names them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ActivationKind {
    /// `max(x, 0)`.
    Relu,
    /// `1 / (1 + e⁻ˣ)`.
    Sigmoid,
    /// `x · sigmoid(x)`.
    Silu,
    /// `x / 2 · (1 + erf(x / √2))`.
    Gelu,
    /// GELU by its tanh approximation: `x / 2 · (1 + tanh(√(2/π) (x + 0.044715 x³)))`.
    GeluTanh,
}

impl ActivationKind {
    /// Every function.
    pub const ALL: &[Self] = &[
        Self::Relu,
        Self::Sigmoid,
        Self::Silu,
        Self::Gelu,
        Self::GeluTanh,
    ];
}

impl OpDef for Activation {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::Activation)
    }

    fn function(&self) -> Option<&'static str> {
        Some(match self.kind {
            ActivationKind::Relu => "relu",
            ActivationKind::Sigmoid => "sigmoid",
            ActivationKind::Silu => "silu",
            ActivationKind::Gelu | ActivationKind::GeluTanh => "gelu",
        })
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [x] = operands(Self::NAME, inputs)?;
        require_float(Self::NAME, x)?;
        Ok(smallvec![x.clone()])
    }

    fn is_composite(&self) -> bool {
        true
    }

    fn decompose(&self, g: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError> {
        let dtype = g.ty(inputs[0]).dtype;
        let x = g.cast(inputs[0], compute_dtype(dtype))?;
        let y = match self.kind {
            ActivationKind::Relu => {
                let zero = g.constant(0.0, g.ty(x).dtype)?;
                g.binary(BinaryOp::Maximum, x, zero)?
            }
            ActivationKind::Sigmoid => sigmoid(g, x)?,
            ActivationKind::Silu => {
                let s = sigmoid(g, x)?;
                g.mul(x, s)?
            }
            ActivationKind::Gelu => {
                let scaled = g.mul_scalar(x, std::f64::consts::FRAC_1_SQRT_2)?;
                let erf = g.unary(UnaryOp::Erf, scaled)?;
                half_x_times_one_plus(g, x, erf)?
            }
            ActivationKind::GeluTanh => {
                let square = g.mul(x, x)?;
                let cubic = g.mul_scalar(square, CUBIC)?;
                let factor = g.add_scalar(cubic, 1.0)?;
                let inner = g.mul(x, factor)?;
                let inner = g.mul_scalar(inner, (2.0 / std::f64::consts::PI).sqrt())?;
                let tanh = g.unary(UnaryOp::Tanh, inner)?;
                half_x_times_one_plus(g, x, tanh)?
            }
        };
        Ok(smallvec![g.cast(y, dtype)?])
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        let (x, y) = (node.inputs[0], node.results[0]);
        let ct = node.cotangent(g, 0)?;
        if self.kind == ActivationKind::Relu {
            // Nothing at 0 itself, as PyTorch has it.
            let zero = g.constant(0.0, g.ty(y).dtype)?;
            let is_flat = g.compare(CompareOp::Le, y, zero)?;
            return node.each(g, |g, _| g.select(is_flat, zero, ct));
        }
        let compute = compute_dtype(g.ty(x).dtype);
        let [x, ct] = [g.cast(x, compute)?, g.cast(ct, compute)?];
        let slope = match self.kind {
            ActivationKind::Relu | ActivationKind::Sigmoid => {
                let y = g.cast(y, compute)?;
                let rest = one_minus(g, y)?;
                g.mul(y, rest)?
            }
            ActivationKind::Silu => {
                // Not by its parts, of whose derivatives some are infinite where the function is flat.
                let kind = ActivationKind::Sigmoid;
                let s = g.push(Self { kind }, &[x])?;
                let rest = one_minus(g, s)?;
                let change = g.mul(x, rest)?;
                let change = g.add_scalar(change, 1.0)?;
                g.mul(s, change)?
            }
            ActivationKind::Gelu => {
                let scaled = g.mul_scalar(x, std::f64::consts::FRAC_1_SQRT_2)?;
                let erf = g.unary(UnaryOp::Erf, scaled)?;
                let share = g.mul_scalar(erf, 0.5)?;
                let share = g.add_scalar(share, 0.5)?;
                let square = g.mul(x, x)?;
                let power = g.mul_scalar(square, -0.5)?;
                let exp = g.unary(UnaryOp::Exp, power)?;
                let density = g.mul_scalar(exp, 1.0 / std::f64::consts::TAU.sqrt())?;
                let change = g.mul(x, density)?;
                g.add(share, change)?
            }
            ActivationKind::GeluTanh => {
                let scale = (2.0 / std::f64::consts::PI).sqrt();
                let square = g.mul(x, x)?;
                let factor = g.mul_scalar(square, CUBIC)?;
                let factor = g.add_scalar(factor, 1.0)?;
                let inner = g.mul(x, factor)?;
                let inner = g.mul_scalar(inner, scale)?;
                let tanh = g.unary(UnaryOp::Tanh, inner)?;
                let share = g.mul_scalar(tanh, 0.5)?;
                let share = g.add_scalar(share, 0.5)?;
                // Half the slope of tanh, and that of what it is of.
                let slope = g.mul(tanh, tanh)?;
                let slope = g.mul_scalar(slope, -0.5 * scale)?;
                let slope = g.add_scalar(slope, 0.5 * scale)?;
                let of_inner = g.mul_scalar(square, 3.0 * CUBIC)?;
                let of_inner = g.add_scalar(of_inner, 1.0)?;
                let change = g.mul(x, slope)?;
                let change = g.mul(change, of_inner)?;
                g.add(share, change)?
            }
        };
        node.each(g, |g, _| g.mul(ct, slope))
    }
}

impl Named for Activation {
    const NAME: &'static str = "activation";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for &kind in ActivationKind::ALL {
            let wide = |x: CaseOperand| x.fill(Fill::Uniform(-6.0, 6.0));
            cases.extend(elementwise(&Self { kind }.into(), &DType::FLOATS, wide));
            for dtype in DType::FLOATS {
                let special = CaseOperand::new([64], dtype).fill(Fill::Special);
                cases.push(Case::new(Self { kind }, [special]));
            }
        }
        cases
    }
}

fn sigmoid(g: &mut Graph, x: ValueId) -> Result<ValueId, OpError> {
    let minus = g.unary(UnaryOp::Neg, x)?;
    let exp = g.unary(UnaryOp::Exp, minus)?;
    let sum = g.add_scalar(exp, 1.0)?;
    g.unary(UnaryOp::Reciprocal, sum)
}

fn half_x_times_one_plus(g: &mut Graph, x: ValueId, y: ValueId) -> Result<ValueId, OpError> {
    let half = g.mul_scalar(x, 0.5)?;
    let one_plus = g.add_scalar(y, 1.0)?;
    g.mul(half, one_plus)
}

fn one_minus(g: &mut Graph, x: ValueId) -> Result<ValueId, OpError> {
    let minus = g.neg(x)?;
    g.add_scalar(minus, 1.0)
}
