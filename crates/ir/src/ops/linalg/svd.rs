use smallvec::smallvec;

use super::matrices::{Matrices, cases};
use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{Case, Fill};
use crate::ops::*;
use crate::{Graph, Named, OpDef, OpType, ResultTypes, Signature, ValueId};

/// Vectors to compute besides the values.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SvdVectors {
    /// No vectors.
    No,
    /// One for each value.
    Reduced,
    /// Two complete bases.
    Full,
}

/// `A = U·diag(S)·Vᴴ` of each matrix `[…, m, n]`. In each column of `U` one element is real and
/// positive, which fixes signs if values differ. It is the first whose absolute value is at least
/// half of the column's largest.
///
/// Results: `U` `[…, m, k]`, if wanted; the real values `S` `[…, k]`, largest first, `k` being the
/// smaller size; `Vᴴ` `[…, k, n]`, if wanted. Full ones are `[…, m, m]` and `[…, n, n]`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Svd {
    /// Vectors to compute.
    pub vectors: SvdVectors,
}

/// The gradient of matrices from those of their vectors and values. If the loss depends on the phases
/// of vectors, the gradient is of no use, as in PyTorch.
fn gradient(
    g: &mut Graph,
    [u, s, vh]: [ValueId; 3],
    [ct_u, ct_s, ct_vh]: [Option<ValueId>; 3],
) -> Result<ValueId, OpError> {
    let dtype = g.ty(u).dtype;
    let rank = g.ty(u).rank();
    let [m, k, n] = [
        g.ty(u).shape[rank - 2],
        g.ty(u).shape[rank - 1],
        g.ty(vh).shape[rank - 1],
    ];
    let values = g.cast(s, dtype)?;
    let (rows, columns) = (
        g.unsqueeze(values, rank - 1)?,
        g.unsqueeze(values, rank - 2)?,
    );
    let square = g.mul(s, s)?;
    let gaps = matrices::differences(g, square)?;
    let gaps = g.cast(gaps, dtype)?;
    // The contribution of rotations of vectors, away from the diagonal.
    let turns = |g: &mut Graph, x: ValueId| {
        let adjoint = g.adjoint(x)?;
        let skew = g.sub(x, adjoint)?;
        let ratio = g.div(skew, gaps)?;
        matrices::without_diagonal(g, ratio)
    };
    let ct_s = match ct_s {
        Some(ct) => ct,
        None => g.zeros_like(s)?,
    };
    let ct_s = g.cast(ct_s, dtype)?;
    let mut inner = matrices::diagonal(g, ct_s)?;
    if let Some(ct) = ct_u {
        let adjoint = g.adjoint(u)?;
        let product = g.matmul(adjoint, ct)?;
        let turned = turns(g, product)?;
        let turned = g.mul(turned, columns)?;
        inner = g.add(inner, turned)?;
        if dtype.is_complex() {
            let phases = matrices::diagonal_of(g, product)?;
            let real = g.real(phases)?;
            let real = g.cast(real, dtype)?;
            let phases = g.sub(phases, real)?;
            let phases = g.div(phases, values)?;
            let phases = matrices::diagonal(g, phases)?;
            inner = g.add(inner, phases)?;
        }
    }
    if let Some(ct) = ct_vh {
        let adjoint = g.adjoint(ct)?;
        let product = g.matmul(vh, adjoint)?;
        let turned = turns(g, product)?;
        let turned = g.mul(rows, turned)?;
        inner = g.add(inner, turned)?;
    }
    let left = g.matmul(u, inner)?;
    let mut a = g.matmul(left, vh)?;
    // The part of the gradient outside the space that the vectors span.
    if let Some(ct) = ct_u.filter(|_| m > k) {
        let adjoint = g.adjoint(u)?;
        let inside = g.matmul(adjoint, ct)?;
        let inside = g.matmul(u, inside)?;
        let outside = g.sub(ct, inside)?;
        let outside = g.div(outside, columns)?;
        let outside = g.matmul(outside, vh)?;
        a = g.add(a, outside)?;
    }
    if let Some(ct) = ct_vh.filter(|_| n > k) {
        let adjoint = g.adjoint(vh)?;
        let inside = g.matmul(ct, adjoint)?;
        let inside = g.matmul(inside, vh)?;
        let outside = g.sub(ct, inside)?;
        let outside = g.div(outside, rows)?;
        let outside = g.matmul(u, outside)?;
        a = g.add(a, outside)?;
    }
    Ok(a)
}

impl OpDef for Svd {
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
        let a = Matrices::of(Self::NAME, a)?;
        let values = a.vector(a.smaller(), a.dtype.real());
        let [left, right] = match self.vectors {
            SvdVectors::No => return Ok(smallvec![values]),
            SvdVectors::Reduced => [a.smaller(); 2],
            SvdVectors::Full => [a.rows, a.columns],
        };
        Ok(smallvec![
            a.matrix(a.rows, left),
            values,
            a.matrix(right, a.columns),
        ])
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        let (a, k) = (
            node.inputs[0],
            g.ty(node.inputs[0]).shape.iter().rev().take(2).min(),
        );
        let (rank, k) = (g.ty(a).rank(), k.map_or(0, |&k| k));
        let vectors = self.vectors != SvdVectors::No;
        let of_values = usize::from(vectors);
        let [u, s, vh] = match vectors {
            true => [node.results[0], node.results[1], node.results[2]],
            false => {
                let vectors = SvdVectors::Reduced;
                let first = g.push(Self { vectors }, &[a])?;
                let results = g.results(first);
                [results[0], results[1], results[2]]
            }
        };
        // The matrix does not determine the rest of a whole basis.
        let u = g.slice(u, rank - 1, 0, k)?;
        let vh = g.slice(vh, rank - 2, 0, k)?;
        let ct_s = node.cotangents[of_values];
        let ct_u = node.cotangents[0].filter(|_| vectors);
        let ct_u = ct_u.map(|ct| g.slice(ct, rank - 1, 0, k)).transpose()?;
        let ct_vh = node.cotangents.get(2).copied().flatten();
        let ct_vh = ct_vh.map(|ct| g.slice(ct, rank - 2, 0, k)).transpose()?;
        node.each(g, |g, _| gradient(g, [u, s, vh], [ct_u, ct_s, ct_vh]))
    }
}

impl Named for Svd {
    const NAME: &'static str = "svd";

    fn cases() -> Vec<Case> {
        let wanted = [SvdVectors::No, SvdVectors::Reduced].map(|vectors| Self { vectors });
        let mut found = cases(wanted, Fill::Dominant, |_| true);
        // The rest of a whole basis is arbitrary, so these matrices are square.
        let full = [Self {
            vectors: SvdVectors::Full,
        }];
        found.extend(cases(full, Fill::Dominant, |[m, n]| m == n));
        found
    }
}
