use smallvec::smallvec;

use super::matrices::{Matrices, cases};
use super::*;
use crate::case::{Case, Fill};
use crate::{Named, OpDef, OpType, ResultTypes, Signature};

/// `A = Q·R` of each matrix `[…, m, n]`, by Householder's reflections as LAPACK's `geqrf`, which also
/// settles signs.
///
/// Results: `Q` `[…, m, k]`, whose columns are orthonormal, and `R` `[…, k, n]`, upper triangular, `k`
/// being the smaller size.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Qr {
    /// Is `k` always `m`, so that `Q` is a whole basis?
    pub complete: bool,
}

impl OpDef for Qr {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::LinearAlgebra)
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
}

impl Named for Qr {
    const NAME: &'static str = "qr";

    fn cases() -> Vec<Case> {
        let both = [false, true].map(|complete| Self { complete });
        cases(both, Fill::Dominant, |_| true)
    }
}
