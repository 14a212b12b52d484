use smallvec::smallvec;

use super::matrices::{Matrices, cases};
use crate::autodiff::{Cotangents, Differentiated, not_differentiable};
use crate::case::{Case, Fill};
use crate::ops::*;
use crate::{Graph, Named, OpDef, OpType, ResultTypes, Signature, ValueId};

/// `A = Q·R` of each matrix `[…, m, n]`, by Householder's reflections as LAPACK's `geqrf`, which also
/// settles signs.
///
/// Results: `Q` `[…, m, k]`, whose columns are orthonormal, and `R` `[…, k, n]`, upper triangular, `k`
/// being the smaller size.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Qr {
    /// Whether `k` is always `m`, so that `Q` is a complete basis.
    pub complete: bool,
}

impl Qr {
    /// The gradient of a matrix that has no more columns than rows, from those of its factors:
    /// `(gQ + Q S(gR Rᴴ - Qᴴ gQ)) R⁻ᴴ`, where `S` makes an upper triangle Hermitian.
    fn square_gradient(
        &self,
        g: &mut Graph,
        [q, r]: [ValueId; 2],
        [ct_q, ct_r]: [ValueId; 2],
    ) -> Result<ValueId, OpError> {
        let adjoint = g.adjoint(r)?;
        let of_r = g.matmul(ct_r, adjoint)?;
        let adjoint = g.adjoint(q)?;
        let of_q = g.matmul(adjoint, ct_q)?;
        let inner = g.sub(of_r, of_q)?;
        let above = matrices::triangle(g, inner, true, 1)?;
        let below = g.adjoint(above)?;
        let diagonal = matrices::diagonal_of(g, inner)?;
        let diagonal = g.real(diagonal)?;
        let diagonal = g.cast(diagonal, g.ty(inner).dtype)?;
        let diagonal = matrices::diagonal(g, diagonal)?;
        let inner = g.add(above, below)?;
        let inner = g.add(inner, diagonal)?;
        let product = g.matmul(q, inner)?;
        let sum = g.add(ct_q, product)?;
        let solve = SolveTriangular {
            upper: true,
            unitriangular: false,
        };
        let sum = g.adjoint(sum)?;
        let solved = g.push(solve, &[r, sum])?;
        g.adjoint(solved)
    }
}

impl OpDef for Qr {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::LinearAlgebra)
    }

    fn is_of_processor(&self) -> bool {
        true
    }

    fn macs(&self, s: &Signature) -> usize {
        Matrices::macs(s).saturating_mul(2)
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [a] = operands(Self::NAME, inputs)?;
        let a = Matrices::of(Self::NAME, a)?;
        let k = if self.complete { a.rows } else { a.smaller() };
        Ok(smallvec![a.matrix(a.rows, k), a.matrix(k, a.columns)])
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        let (q, r) = (node.results[0], node.results[1]);
        let shape = g.ty(node.inputs[0]).shape.clone();
        let rank = shape.len();
        let (m, n) = (shape[rank - 2], shape[rank - 1]);
        let legal = !self.complete || m <= n;
        let reason =
            "a complete basis, which the matrix determines only in part (use the reduced one)";
        if !legal {
            return Err(not_differentiable(Self::NAME, reason));
        }
        let mut ct_q = node.cotangent(g, 0)?;
        let ct_r = node.cotangent(g, 1)?;
        node.each(g, |g, _| {
            if m >= n {
                return self.square_gradient(g, [q, r], [ct_q, ct_r]);
            }
            // The columns that are more follow from Q.
            let parts = |g: &mut Graph, x| {
                let left = g.slice(x, rank - 1, 0, m)?;
                Ok((left, g.slice(x, rank - 1, m, n)?))
            };
            let (r, _) = parts(g, r)?;
            let (ct_left, ct_right) = parts(g, ct_r)?;
            let (_, right) = parts(g, node.inputs[0])?;
            let adjoint = g.adjoint(ct_right)?;
            let through = g.matmul(right, adjoint)?;
            ct_q = g.add(ct_q, through)?;
            let left = self.square_gradient(g, [q, r], [ct_q, ct_left])?;
            let right = g.matmul(q, ct_right)?;
            g.push(Concat { dim: rank - 1 }, &[left, right])
        })
    }
}

impl Named for Qr {
    const NAME: &'static str = "qr";

    fn cases() -> Vec<Case> {
        let both = [false, true].map(|complete| Self { complete });
        cases(both, Fill::Dominant, |_| true)
    }
}
