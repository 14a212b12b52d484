use smallvec::smallvec;

use super::matrices::{Matrices, cases};
use super::*;
use crate::case::{Case, Fill};
use crate::{Named, OpDef, OpType, ResultTypes, Signature};

/// Eigenvalues and eigenvectors of each Hermitian matrix `[…, n, n]`, of which only the lower triangle
/// is read. The phases of vectors are as those of [`Svd`].
///
/// Results: the real values `[…, n]`, smallest first; orthonormal vectors as columns `[…, n, n]`, if
/// wanted.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Eigh {
    /// Are the vectors wanted?
    pub vectors: bool,
}

impl OpDef for Eigh {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::LinearAlgebra)
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
}

impl Named for Eigh {
    const NAME: &'static str = "eigh";

    fn cases() -> Vec<Case> {
        let both = [false, true].map(|vectors| Self { vectors });
        cases(both, Fill::Dominant, |[m, n]| m == n)
    }
}
