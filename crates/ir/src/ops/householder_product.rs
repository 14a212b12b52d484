use smallvec::smallvec;

use super::matrices::Matrices;
use super::*;
use crate::case::{Arrange, Case, Operand};
use crate::{Named, OpDef, OpType, ResultTypes, Signature};

/// The first `n` columns of the product of the reflections `1 − τ·v·vᴴ` whose vectors are below the
/// diagonal of each matrix `[…, m, n]`, `n ≤ m`, and whose factors are `τ` `[…, k]`, `k ≤ n`: what
/// [`Geqrf`] gives becomes `Q`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct HouseholderProduct;

impl OpDef for HouseholderProduct {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::LinearAlgebra)
    }

    fn macs(&self, s: &Signature) -> usize {
        Matrices::macs(s)
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [a, tau] = operands(Self::NAME, inputs)?;
        require_same(Self::NAME, a, tau)?;
        let got = format_args!("{a} and {tau}");
        let a = Matrices::of(Self::NAME, a)?;
        let count = tau.shape.last().copied().unwrap_or(0);
        let is_one = a.rows >= a.columns && count <= a.columns && *tau == a.vector(count, a.dtype);
        let expected = "matrices of no more columns than rows, with no more factors than columns";
        require(Self::NAME, is_one, expected, got)?;
        Ok(smallvec![a.matrix(a.rows, a.columns)])
    }
}

impl Named for HouseholderProduct {
    const NAME: &'static str = "householder_product";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for dtype in Matrices::DTYPES {
            let x = |shape: &[usize]| Operand::new(shape, dtype);
            let mut push = |a, tau| cases.push(Case::new(Self, [a, tau]));
            push(x(&[5, 3]), x(&[3]));
            push(x(&[4, 4]), x(&[2]));
            push(x(&[2, 6, 3]).arrange(Arrange::Transposed), x(&[2, 3]));
            push(x(&[3, 0]), x(&[0]));
            push(x(&[3, 2]), x(&[0]));
        }
        cases
    }
}
