use smallvec::smallvec;

use super::matrices::{Matrices, cases};
use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{Case, Fill};
use crate::ops::*;
use crate::{Graph, Named, OpDef, OpType, ResultTypes, Signature};

/// The Cholesky factor `L` of each positive definite matrix `A = L·Lᴴ` `[…, n, n]`. Only the lower
/// triangle is read.
///
/// Results: the lower triangular factors `[…, n, n]`; `i32` `[…]`, 0 or the order of the first leading
/// minor that is not positive. The factor of such a matrix is meaningless.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Cholesky {
    /// Whether a matrix that is not positive definite is an error.
    pub check: bool,
}

impl OpDef for Cholesky {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::LinearAlgebra)
    }

    fn is_of_processor(&self) -> bool {
        true
    }

    fn macs(&self, s: &Signature) -> usize {
        Matrices::macs(s) / 6
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [a] = operands(Self::NAME, inputs)?;
        let a = Matrices::square(Self::NAME, a)?;
        Ok(smallvec![a.matrix(a.rows, a.rows), a.scalar(DType::I32)])
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        let l = node.results[0];
        let ct = node.cotangent(g, 0)?;
        node.each(g, |g, _| {
            // L⁻ᴴ S L⁻¹, where S is half of the lower triangle of Lᴴ ct and its mirror image.
            let adjoint = g.adjoint(l)?;
            let inner = g.matmul(adjoint, ct)?;
            let lower = matrices::triangle(g, inner, false, 0)?;
            let strict = matrices::triangle(g, inner, false, -1)?;
            let upper = g.adjoint(strict)?;
            let inner = g.add(lower, upper)?;
            let inner = g.mul_scalar(inner, 0.5)?;
            let solve = SolveTriangular {
                upper: true,
                unitriangular: false,
            };
            let left = g.push(solve.clone(), &[adjoint, inner])?;
            let left = g.adjoint(left)?;
            let both = g.push(solve, &[adjoint, left])?;
            g.adjoint(both)
        })
    }
}

impl Named for Cholesky {
    const NAME: &'static str = "cholesky";

    fn cases() -> Vec<Case> {
        let both = [false, true].map(|check| Self { check });
        cases(both, Fill::Dominant, |[rows, columns]| rows == columns)
    }
}
