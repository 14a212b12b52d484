use smallvec::smallvec;

use super::matrices::{Matrices, cases};
use super::*;
use crate::case::{Case, Fill};
use crate::{Named, OpDef, OpType, ResultTypes, Signature};

/// Which vectors are wanted beside values.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SvdVectors {
    /// None.
    No,
    /// As many as there are values.
    Reduced,
    /// Two whole bases.
    Full,
}

/// `A = U·diag(S)·Vᴴ` of each matrix `[…, m, n]`. The first element of each column of `U` whose
/// modulus is at least half of the column's largest is real and positive, which settles signs where
/// values differ.
///
/// Results: `U` `[…, m, k]`, if wanted; the real values `S` `[…, k]`, largest first, `k` being the
/// smaller size; `Vᴴ` `[…, k, n]`, if wanted. Full ones are `[…, m, m]` and `[…, n, n]`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Svd {
    /// Which vectors are wanted.
    pub vectors: SvdVectors,
}

impl OpDef for Svd {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::LinearAlgebra)
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
}

impl Named for Svd {
    const NAME: &'static str = "svd";

    fn cases() -> Vec<Case> {
        let wanted = [SvdVectors::No, SvdVectors::Reduced].map(|vectors| Self { vectors });
        let mut found = cases(wanted, Fill::Dominant, |_| true);
        // What a whole basis has beyond the values is any of many.
        let full = [Self {
            vectors: SvdVectors::Full,
        }];
        found.extend(cases(full, Fill::Dominant, |[m, n]| m == n));
        found
    }
}
