use smallvec::smallvec;

use super::matrices::{Matrices, cases};
use super::*;
use crate::case::{Case, Fill};
use crate::{Named, OpDef, OpType, ResultTypes, Signature};

/// `P·A = L·U` of each matrix `[…, m, n]`, rows being exchanged so that each pivot is the largest of
/// its column (of complex numbers by the sum of the parts' moduli, as LAPACK's `getrf`).
///
/// Results: `L`, but for its diagonal of 1, and `U` in one `[…, m, n]`; `i32` `[…, k]`, where `k` is
/// the smaller size, the row, from 1, that each row was exchanged with; `i32` `[…]`, 0 or which pivot,
/// from 1, is the first that is 0.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Lu {
    /// Is a pivot of 0 a mistake?
    pub check: bool,
}

impl OpDef for Lu {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::LinearAlgebra)
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
}

impl Named for Lu {
    const NAME: &'static str = "lu";

    fn cases() -> Vec<Case> {
        let both = [false, true].map(|check| Self { check });
        cases(both, Fill::Dominant, |_| true)
    }
}
