use smallvec::smallvec;

use super::matrices::{Matrices, cases};
use super::*;
use crate::autodiff::{Cotangents, Differentiated, not_differentiable};
use crate::case::{Case, Fill};
use crate::{Graph, Named, OpDef, OpType, ResultTypes, Signature};

/// `P·A·Pᵀ = L·D·Lᵀ` of each symmetric matrix `[…, n, n]`, of which only the lower triangle is read,
/// with pivots of Bunch and Kaufman, as LAPACK's `sytrf` gives it; of Hermitian ones `L·D·Lᴴ`, as
/// `hetrf`.
///
/// Results: `L`, but for its diagonal of 1, and the blocks of 1 × 1 and 2 × 2 that `D` is made of in
/// the lower triangle of one `[…, n, n]`, above it 0; `i32` `[…, n]`, the row, from 1, that each row
/// was exchanged with, and for both rows of a block of 2 × 2 the negative of that which the second
/// was; `i32` `[…]`, 0 or which block, from 1, is the first that is 0.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Ldl {
    /// Are the matrices Hermitian? Real ones are if they are symmetric.
    pub hermitian: bool,
    /// Is a block of 0 a mistake?
    pub check: bool,
}

impl OpDef for Ldl {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::LinearAlgebra)
    }

    fn macs(&self, s: &Signature) -> usize {
        Matrices::macs(s) / 6
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [a] = operands(Self::NAME, inputs)?;
        let a = Matrices::square(Self::NAME, a)?;
        Ok(smallvec![
            a.matrix(a.rows, a.rows),
            a.vector(a.rows, DType::I32),
            a.scalar(DType::I32),
        ])
    }

    fn vjp(&self, _: &mut Graph, _: &Differentiated) -> Result<Cotangents, OpError> {
        Err(not_differentiable(
            Self::NAME,
            "PyTorch has none of it either",
        ))
    }
}

impl Named for Ldl {
    const NAME: &'static str = "ldl";

    fn cases() -> Vec<Case> {
        let [a, b] =
            [false, true].map(|check| [false, true].map(|hermitian| Self { hermitian, check }));
        let is_square = |[rows, columns]: [usize; 2]| rows == columns;
        // Diagonals that outweigh the rest have blocks of 1 × 1 alone.
        let mut all = cases([a.clone(), b].concat(), Fill::Dominant, is_square);
        all.extend(cases(a, Fill::Uniform(-2.0, 2.0), is_square));
        all
    }
}
