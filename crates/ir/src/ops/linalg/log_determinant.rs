use smallvec::smallvec;

use super::matrices::{Matrices, cases};
use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{Case, Fill};
use crate::ops::*;
use crate::{Graph, Named, OpDef, OpType, ResultTypes, Results, Signature, ValueId};

/// The determinant of each matrix `[…, n, n]`: `torch.linalg.slogdet`. The first result is its sign `[…]`, the phase
/// for complex numbers. The second is the real logarithm of its modulus `[…]`. Singular matrices have 0 and −∞.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct LogDeterminant;

impl OpDef for LogDeterminant {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::LinearAlgebra)
    }

    fn is_of_processor(&self) -> bool {
        true
    }

    fn macs(&self, s: &Signature) -> usize {
        Matrices::macs(s) / 3
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [a] = operands(Self::NAME, inputs)?;
        let a = Matrices::square(Self::NAME, a)?;
        Ok(smallvec![a.scalar(a.dtype), a.scalar(a.dtype.real())])
    }

    fn is_composite(&self) -> bool {
        true
    }

    fn decompose(&self, g: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError> {
        let first = g.push(Lu { check: false }, inputs)?;
        let (diagonal, signs) = (matrices::diagonal_of(g, first)?, matrices::signs(g, first)?);
        let length = g.unary(UnaryOp::Abs, diagonal)?;
        let direction = match g.ty(diagonal).dtype {
            dtype if dtype.is_complex() => {
                let divisor = matrices::or_one(g, length)?;
                let divisor = g.cast(divisor, dtype)?;
                g.div(diagonal, divisor)?
            }
            _ => g.unary(UnaryOp::Sign, diagonal)?,
        };
        // One after the other, so that −1 of complex numbers has an imaginary part of +0, as in PyTorch.
        let [direction, sign] = [direction, signs].map(|x| matrices::reduced(g, ReduceOp::Prod, x));
        let phase = g.mul(direction?, sign?)?;
        let logarithms = g.unary(UnaryOp::Log, length)?;
        Ok(smallvec![
            phase,
            matrices::reduced(g, ReduceOp::Sum, logarithms)?,
        ])
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        let (a, phase) = (node.inputs[0], node.results[0]);
        let dtype = g.ty(a).dtype;
        // The logarithm of the modulus follows the real part of tr(A⁻¹ dA), the phase the imaginary one.
        let ct = node.cotangent(g, 1)?;
        let mut ct = g.cast(ct, dtype)?;
        if let Some(turned) = node.cotangents[0].filter(|_| dtype.is_complex()) {
            let back = g.conj(phase)?;
            let along = g.mul(turned, back)?;
            let real = g.real(along)?;
            let real = g.cast(real, dtype)?;
            let across = g.sub(along, real)?;
            ct = g.add(ct, across)?;
        }
        let ct = matrices::for_each_element(g, ct)?;
        node.each(g, |g, _| {
            let one = g.full(g.ty(a).shape.clone(), 1, dtype)?;
            let all = g.mul(one, ct)?;
            let scaled = matrices::diagonal_alone(g, all)?;
            let adjoint = g.adjoint(a)?;
            matrices::solve(g, adjoint, scaled)
        })
    }
}

impl Named for LogDeterminant {
    const NAME: &'static str = "log_determinant";

    fn cases() -> Vec<Case> {
        cases([Self], Fill::Dominant, |[m, n]| m == n)
    }
}
