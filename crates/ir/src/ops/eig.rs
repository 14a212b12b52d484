use smallvec::smallvec;

use super::matrices::{Matrices, cases};
use super::*;
use crate::case::{Case, Fill};
use crate::{Named, OpDef, OpType, ResultTypes, Signature};

/// Eigenvalues and eigenvectors of each square matrix `[…, n, n]`.
///
/// Results: complex values `[…, n]`, by their real parts, of equal ones that with the larger
/// imaginary part first; complex vectors of length 1 as columns `[…, n, n]`, if wanted, with phases as
/// those of [`Svd`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Eig {
    /// Are the vectors wanted?
    pub vectors: bool,
}

impl OpDef for Eig {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::LinearAlgebra)
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
}

impl Named for Eig {
    const NAME: &'static str = "eig";

    fn cases() -> Vec<Case> {
        let both = [false, true].map(|vectors| Self { vectors });
        cases(both, Fill::Dominant, |[m, n]| m == n)
    }
}
