use smallvec::smallvec;

use super::matrices::{Matrices, cases};
use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{Case, CaseOperand, Fill};
use crate::ops::*;
use crate::{Graph, Named, OpDef, OpType, ResultTypes, Results, Signature, ValueId};

/// The pseudo-inverse `[…, n, m]` (Moore and Penrose) of each matrix `[…, m, n]`, by its singular values.
///
/// Operands: the matrices; two real bounds for each, `[…, 1]`. Singular values not above
/// `max(first, second · largest)` count as 0.
///
/// The gradient assumes that the rank does not change (Golub and Pereyra, 1973). It needs no
/// singular vectors, whose own gradients are useless if singular values are equal or 0.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PseudoInverse;

impl OpDef for PseudoInverse {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::LinearAlgebra)
    }

    fn is_of_processor(&self) -> bool {
        true
    }

    fn macs(&self, s: &Signature) -> usize {
        Matrices::macs(s).saturating_mul(11)
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [a, absolute, relative] = operands(Self::NAME, inputs)?;
        let got = format_args!("{a}, {absolute} and {relative}");
        let a = Matrices::of(Self::NAME, a)?;
        let bound = a.vector(1, a.dtype.real());
        let fits = *absolute == bound && *relative == bound;
        require(Self::NAME, fits, "matrices, and two bounds for each", got)?;
        Ok(smallvec![a.matrix(a.columns, a.rows)])
    }

    fn is_composite(&self) -> bool {
        true
    }

    fn decompose(&self, g: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError> {
        let &[a, absolute, relative] = inputs else {
            return Err(OpError::new(Self::NAME, "three operands", inputs.len()));
        };
        let TensorType { shape, dtype } = g.ty(a).clone();
        let rank = shape.len();
        if shape[rank - 1].min(shape[rank - 2]) == 0 {
            return Ok(smallvec![g.transpose(a)?]);
        }
        let vectors = SvdVectors::Reduced;
        let u = g.push(Svd { vectors }, &[a])?;
        let (s, vh) = (g.results(u)[1], g.results(u)[2]);
        let largest = g.slice(s, rank - 2, 0, 1)?;
        let relative = g.mul(relative, largest)?;
        let bound = g.binary(BinaryOp::Maximum, absolute, relative)?;
        let counts = g.compare(CompareOp::Gt, s, bound)?;
        let (zero, one) = (g.constant(0, dtype.real())?, g.constant(1, dtype.real())?);
        let divisor = g.select(counts, s, one)?;
        let inverse = g.div(one, divisor)?;
        let inverse = g.select(counts, inverse, zero)?;
        let inverse = g.cast(inverse, dtype)?;
        let inverse = g.unsqueeze(inverse, rank - 2)?;
        let v = g.adjoint(vh)?;
        let scaled = g.mul(v, inverse)?;
        let uh = g.adjoint(u)?;
        Ok(smallvec![g.matmul(scaled, uh)?])
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        let (a, p) = (node.inputs[0], node.results[0]);
        let ct = node.cotangent(g, 0)?;
        node.each(g, |g, i| {
            if i > 0 {
                return g.zeros_like(node.inputs[i]);
            }
            // (1 - A P) ctᴴ P Pᴴ + Pᴴ P ctᴴ (1 - P A) - Pᴴ ct Pᴴ
            let (ph, cth) = (g.adjoint(p)?, g.adjoint(ct)?);
            let inside = g.matmul(ph, ct)?;
            let inside = g.matmul(inside, ph)?;
            let left = g.matmul(cth, p)?;
            let left = g.matmul(left, ph)?;
            let projected = g.matmul(p, left)?;
            let projected = g.matmul(a, projected)?;
            let left = g.sub(left, projected)?;
            let right = g.matmul(p, cth)?;
            let right = g.matmul(ph, right)?;
            let projected = g.matmul(right, p)?;
            let projected = g.matmul(projected, a)?;
            let right = g.sub(right, projected)?;
            let outside = g.add(left, right)?;
            g.sub(outside, inside)
        })
    }
}

impl Named for PseudoInverse {
    const NAME: &'static str = "pseudo_inverse";

    fn cases() -> Vec<Case> {
        let mut cases = cases([Self], Fill::Dominant, |_| true);
        for Case { inputs, .. } in &mut cases {
            let TensorType { shape, dtype } = &inputs[0].ty;
            let bound = [&shape[..shape.len() - 2], &[1]].concat();
            let bound = CaseOperand::new(bound, dtype.real()).fill(Fill::Uniform(0.0, 1e-3));
            inputs.extend([bound.clone(), bound]);
        }
        cases
    }
}
