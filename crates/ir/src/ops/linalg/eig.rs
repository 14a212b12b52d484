use smallvec::smallvec;

use super::matrices::{Matrices, cases};
use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{Case, Fill};
use crate::ops::*;
use crate::{Graph, Named, OpDef, OpType, ResultTypes, Signature};

/// Eigenvalues and eigenvectors of each square matrix `[…, n, n]`.
///
/// Results: complex values `[…, n]`, by their real parts, of equal ones that with the larger
/// imaginary part first; complex vectors of length 1 as columns `[…, n, n]`, if wanted, with phases as
/// those of [`Svd`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Eig {
    /// Whether the vectors are requested.
    pub vectors: bool,
}

impl OpDef for Eig {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::LinearAlgebra)
    }

    fn is_of_processor(&self) -> bool {
        true
    }

    fn macs(&self, s: &Signature) -> usize {
        Matrices::macs(s).saturating_mul(20)
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [a] = operands(Self::NAME, inputs)?;
        let a = Matrices::square(Self::NAME, a)?;
        let complex = Matrices {
            dtype: a.dtype.complex().unwrap_or(a.dtype),
            ..a
        };
        let mut results: ResultTypes = smallvec![complex.vector(a.rows, complex.dtype)];
        results.extend(self.vectors.then(|| complex.matrix(a.rows, a.rows)));
        Ok(results)
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        let (values, vectors) = match self.vectors {
            true => (node.results[0], node.results[1]),
            false => {
                let first = g.push(Self { vectors: true }, &[node.inputs[0]])?;
                let results = g.results(first);
                (results[0], results[1])
            }
        };
        let adjoint = g.adjoint(vectors)?;
        let rank = g.ty(vectors).rank();
        let mut inner = None;
        if let Some(ct) = node.cotangents.get(1).copied().flatten() {
            // Vectors keep their length.
            let product = g.matmul(adjoint, ct)?;
            let along = matrices::diagonal_of(g, product)?;
            let along = g.real(along)?;
            let along = g.cast(along, g.ty(vectors).dtype)?;
            let along = g.unsqueeze(along, rank - 2)?;
            let lengths = g.matmul(adjoint, vectors)?;
            let lengths = g.mul(lengths, along)?;
            let change = g.sub(product, lengths)?;
            let gaps = matrices::differences(g, values)?;
            let gaps = g.conj(gaps)?;
            let ratio = g.div(change, gaps)?;
            inner = Some(matrices::without_diagonal(g, ratio)?);
        }
        if let Some(ct) = node.cotangents[0] {
            let ct = matrices::diagonal(g, ct)?;
            inner = Some(match inner {
                Some(inner) => g.add(inner, ct)?,
                None => ct,
            });
        }
        node.each(g, |g, _| {
            let Some(inner) = inner else {
                return g.zeros_like(node.inputs[0]);
            };
            let right = g.matmul(inner, adjoint)?;
            matrices::solve(g, adjoint, right)
        })
    }
}

impl Named for Eig {
    const NAME: &'static str = "eig";

    fn cases() -> Vec<Case> {
        let both = [false, true].map(|vectors| Self { vectors });
        cases(both, Fill::Dominant, |[m, n]| m == n)
    }
}
