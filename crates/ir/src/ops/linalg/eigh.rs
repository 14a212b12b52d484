use smallvec::smallvec;

use super::matrices::{Matrices, cases};
use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{Case, Fill};
use crate::ops::*;
use crate::{Graph, Named, OpDef, OpType, ResultTypes, Signature};

/// Eigenvalues and eigenvectors of each Hermitian matrix `[…, n, n]`. Only the lower triangle is read.
///
/// Results: the real values `[…, n]`, smallest first; orthonormal vectors as columns `[…, n, n]`, if
/// wanted.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Eigh {
    /// Whether the vectors are requested.
    pub vectors: bool,
}

impl OpDef for Eigh {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::LinearAlgebra)
    }

    fn is_of_processor(&self) -> bool {
        true
    }

    fn macs(&self, s: &Signature) -> usize {
        Matrices::macs(s).saturating_mul(5)
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [a] = operands(Self::NAME, inputs)?;
        let a = Matrices::square(Self::NAME, a)?;
        let mut results: ResultTypes = smallvec![a.vector(a.rows, a.dtype.real())];
        results.extend(self.vectors.then(|| a.matrix(a.rows, a.rows)));
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
        let dtype = g.ty(vectors).dtype;
        let adjoint = g.adjoint(vectors)?;
        let mut inner = None;
        if let Some(ct) = node.cotangents.get(1).copied().flatten() {
            // Away from the diagonal, over the differences of values; Hermitian as the matrix is.
            let product = g.matmul(adjoint, ct)?;
            let gaps = matrices::differences(g, values)?;
            let gaps = g.cast(gaps, dtype)?;
            let ratio = g.div(product, gaps)?;
            let ratio = matrices::without_diagonal(g, ratio)?;
            let mirrored = g.adjoint(ratio)?;
            let sum = g.add(ratio, mirrored)?;
            inner = Some(g.mul_scalar(sum, 0.5)?);
        }
        if let Some(ct) = node.cotangents[0] {
            let ct = g.cast(ct, dtype)?;
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
            let left = g.matmul(vectors, inner)?;
            g.matmul(left, adjoint)
        })
    }
}

impl Named for Eigh {
    const NAME: &'static str = "eigh";

    fn cases() -> Vec<Case> {
        let both = [false, true].map(|vectors| Self { vectors });
        cases(both, Fill::Dominant, |[m, n]| m == n)
    }
}
