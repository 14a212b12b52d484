use smallvec::smallvec;

use super::matrices::{Matrices, cases};
use crate::autodiff::{Cotangents, Differentiated, not_differentiable};
use crate::case::{Case, Fill};
use crate::ops::*;
use crate::{Graph, Named, OpDef, OpType, ResultTypes, Signature};

/// `P·A·Pᵀ = L·D·Lᵀ` of each symmetric matrix `[…, n, n]`, with pivots of Bunch and Kaufman, as in
/// LAPACK's `sytrf`. For Hermitian matrices it is `L·D·Lᴴ`, as in `hetrf`. Only the lower triangle
/// is read.
///
/// Results: `L` and `D` in one `[…, n, n]`, with 0 above. `L` comes without its diagonal of 1; `D`
/// has blocks of 1 × 1 and 2 × 2. Then the pivots, `i32` `[…, n]`: the row, from 1, that each row
/// was exchanged with. Both rows of a block of 2 × 2 have the negative of the second one's row. Then
/// `i32` `[…]`: the number, from 1, of the first block that is 0, or 0.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Ldl {
    /// Whether the matrices are Hermitian. Real ones are if they are symmetric.
    pub hermitian: bool,
    /// Whether a zero block is an error.
    pub check: bool,
}

impl OpDef for Ldl {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::LinearAlgebra)
    }

    fn is_of_processor(&self) -> bool {
        true
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
            "PyTorch has no gradient of it either",
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
