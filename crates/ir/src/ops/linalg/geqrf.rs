use smallvec::smallvec;

use super::matrices::{Matrices, cases};
use crate::autodiff::{Cotangents, Differentiated, not_differentiable};
use crate::case::{Case, Fill};
use crate::ops::*;
use crate::{Graph, Named, OpDef, OpType, ResultTypes, Signature};

/// The QR factors of each matrix `[…, m, n]` as LAPACK's `geqrf` stores them: reflections
/// `1 − τ·v·vᴴ`, whose product is `Q`.
///
/// Results: `R` in the upper triangle, below it the vectors `v` without their first element, 1,
/// `[…, m, n]`; the factors `τ` `[…, k]`, `k` being the smaller size.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Geqrf;

impl OpDef for Geqrf {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::LinearAlgebra)
    }

    fn is_of_processor(&self) -> bool {
        true
    }

    fn macs(&self, s: &Signature) -> usize {
        Matrices::macs(s)
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [a] = operands(Self::NAME, inputs)?;
        let a = Matrices::of(Self::NAME, a)?;
        Ok(smallvec![
            a.matrix(a.rows, a.columns),
            a.vector(a.smaller(), a.dtype)
        ])
    }

    fn vjp(&self, _: &mut Graph, _: &Differentiated) -> Result<Cotangents, OpError> {
        Err(not_differentiable(
            Self::NAME,
            "PyTorch has no gradient of it either (qr has one)",
        ))
    }
}

impl Named for Geqrf {
    const NAME: &'static str = "geqrf";

    fn cases() -> Vec<Case> {
        cases([Self], Fill::Dominant, |_| true)
    }
}
