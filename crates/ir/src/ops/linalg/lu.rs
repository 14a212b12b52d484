use smallvec::smallvec;

use super::matrices::{Matrices, cases};
use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{Case, Fill};
use crate::ops::*;
use crate::{Graph, Named, OpDef, OpType, ResultTypes, Signature};

/// `P·A = L·U` of each matrix `[…, m, n]`. Rows are exchanged so that each pivot is the largest of
/// its column. Complex numbers are compared by the sum of the parts' moduli, as in LAPACK's `getrf`.
///
/// Results: `L`, but for its diagonal of 1, and `U` in one `[…, m, n]`; `i32` `[…, k]`, where `k` is
/// the smaller size, the row, from 1, that each row was exchanged with; `i32` `[…]`, 0 or which pivot,
/// from 1, is the first that is 0.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Lu {
    /// Whether a zero pivot is an error.
    pub check: bool,
}

impl OpDef for Lu {
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
        let a = Matrices::of(Self::NAME, a)?;
        Ok(smallvec![
            a.matrix(a.rows, a.columns),
            a.vector(a.smaller(), DType::I32),
            a.scalar(DType::I32),
        ])
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        let (packed, pivots) = (node.results[0], node.results[1]);
        let shape = g.ty(packed).shape.clone();
        let rank = shape.len();
        let (m, n) = (shape[rank - 2], shape[rank - 1]);
        let k = m.min(n);
        let ct = node.cotangent(g, 0)?;
        node.each(g, |g, _| {
            // With L and U of the square part, of which the rest follows:
            // L⁻ᴴ (the lower triangle of Lᴴ gL, and the upper one of gU Uᴴ) U⁻ᴴ.
            let rows = |g: &mut Graph, x, from, to| g.slice(x, rank - 2, from, to);
            let columns = |g: &mut Graph, x, from, to| g.slice(x, rank - 1, from, to);
            let square = rows(g, packed, 0, k)?;
            let square = columns(g, square, 0, k)?;
            let ct_square = rows(g, ct, 0, k)?;
            let ct_square = columns(g, ct_square, 0, k)?;
            let strictly_lower = matrices::triangle(g, square, false, -1)?;
            let lower_adjoint = g.adjoint(strictly_lower)?;
            let upper = matrices::triangle(g, square, true, 0)?;
            let upper_adjoint = g.adjoint(upper)?;
            let ct_lower = matrices::triangle(g, ct_square, false, -1)?;
            let ct_upper = matrices::triangle(g, ct_square, true, 0)?;
            let mut lower = g.matmul(lower_adjoint, ct_lower)?;
            lower = g.add(lower, ct_lower)?;
            let mut inner = g.matmul(ct_upper, upper_adjoint)?;
            let (mut below, mut beside) = (None, None);
            if m > k {
                let (l, ct) = (rows(g, packed, k, m)?, rows(g, ct, k, m)?);
                let adjoint = g.adjoint(l)?;
                let product = g.matmul(adjoint, ct)?;
                inner = g.sub(inner, product)?;
                below = Some(ct);
            }
            if n > k {
                let (u, ct) = (columns(g, packed, k, n)?, columns(g, ct, k, n)?);
                let adjoint = g.adjoint(u)?;
                let product = g.matmul(ct, adjoint)?;
                lower = g.sub(lower, product)?;
                beside = Some(ct);
            }
            let lower = matrices::triangle(g, lower, false, -1)?;
            let inner = matrices::triangle(g, inner, true, 0)?;
            let inner = g.add(lower, inner)?;
            let by_lower = |g: &mut Graph, x| {
                let solve = SolveTriangular {
                    upper: true,
                    unitriangular: true,
                };
                g.push(solve, &[lower_adjoint, x])
            };
            let by_upper = |g: &mut Graph, x| {
                let solve = SolveTriangular {
                    upper: true,
                    unitriangular: false,
                };
                let x = g.adjoint(x)?;
                let x = g.push(solve, &[upper, x])?;
                g.adjoint(x)
            };
            let mut a = by_lower(g, inner)?;
            a = by_upper(g, a)?;
            if let Some(below) = below {
                let below = by_upper(g, below)?;
                a = g.push(Concat { dim: rank - 2 }, &[a, below])?;
            }
            if let Some(beside) = beside {
                let beside = by_lower(g, beside)?;
                a = g.push(Concat { dim: rank - 1 }, &[a, beside])?;
            }
            // Back to the rows that they were.
            let order = g.push(LuPivotsToPermutation { rows: m }, &[pivots])?;
            let order = g.unsqueeze(order, rank - 1)?;
            let order = g.broadcast(order, shape.clone())?;
            g.scatter_add(shape.clone(), rank - 2, order, a)
        })
    }
}

impl Named for Lu {
    const NAME: &'static str = "lu";

    fn cases() -> Vec<Case> {
        let both = [false, true].map(|check| Self { check });
        cases(both, Fill::Dominant, |_| true)
    }
}
