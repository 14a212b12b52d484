use smallvec::smallvec;

use super::matrices::{Matrices, cases};
use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{Case, Fill};
use crate::ops::*;
use crate::{Graph, Named, OpDef, OpType, ResultTypes, Results, Signature, ValueId};

/// The determinant `[…]` of each matrix `[…, n, n]`: `torch.linalg.det`.
///
/// The gradient is made of the [`Adjugate`], and so is right for singular matrices, too.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Determinant;

impl OpDef for Determinant {
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
        Ok(smallvec![a.scalar(a.dtype)])
    }

    fn is_composite(&self) -> bool {
        true
    }

    fn decompose(&self, g: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError> {
        let first = g.push(Lu { check: false }, inputs)?;
        let (diagonal, signs) = (matrices::diagonal_of(g, first)?, matrices::signs(g, first)?);
        let factors = g.mul(diagonal, signs)?;
        Ok(smallvec![matrices::reduced(g, ReduceOp::Prod, factors)?])
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        let ct = node.cotangent(g, 0)?;
        let ct = matrices::for_each_element(g, ct)?;
        node.each(g, |g, i| {
            let adjugate = g.push(Adjugate, &[node.inputs[i]])?;
            let adjugate = g.adjoint(adjugate)?;
            g.mul(adjugate, ct)
        })
    }
}

impl Named for Determinant {
    const NAME: &'static str = "determinant";

    fn cases() -> Vec<Case> {
        cases([Self], Fill::Dominant, |[m, n]| m == n)
    }
}
