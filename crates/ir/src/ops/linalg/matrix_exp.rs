use smallvec::smallvec;

use super::matrices::{Matrices, cases};
use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{Case, Fill};
use crate::ops::*;
use crate::{Graph, Named, OpDef, OpType, ResultTypes, Signature};

/// `eᴬ = Σ Aⁱ / i!` of each square matrix `[…, n, n]`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct MatrixExp;

impl OpDef for MatrixExp {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::LinearAlgebra)
    }

    fn is_of_processor(&self) -> bool {
        true
    }

    fn macs(&self, s: &Signature) -> usize {
        Matrices::macs(s).saturating_mul(10)
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [a] = operands(Self::NAME, inputs)?;
        let a = Matrices::square(Self::NAME, a)?;
        Ok(smallvec![a.matrix(a.rows, a.rows)])
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        let a = node.inputs[0];
        let rank = g.ty(a).rank();
        let n = g.ty(a).shape[rank - 1];
        let ct = node.cotangent(g, 0)?;
        node.each(g, |g, _| {
            // The block beside the diagonal of the exponential of Aᴴ twice, with the gradient beside it.
            let adjoint = g.adjoint(a)?;
            let zeros = g.zeros_like(a)?;
            let above = g.push(Concat { dim: rank - 1 }, &[adjoint, ct])?;
            let below = g.push(Concat { dim: rank - 1 }, &[zeros, adjoint])?;
            let both = g.push(Concat { dim: rank - 2 }, &[above, below])?;
            let exp = g.push(Self, &[both])?;
            let above = g.slice(exp, rank - 2, 0, n)?;
            g.slice(above, rank - 1, n, 2 * n)
        })
    }
}

impl Named for MatrixExp {
    const NAME: &'static str = "matrix_exp";

    fn cases() -> Vec<Case> {
        let fill = Fill::Uniform(-2.0, 2.0);
        cases([Self], fill, |[m, n]| m == n)
    }
}
