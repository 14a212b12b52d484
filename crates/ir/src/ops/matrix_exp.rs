use smallvec::smallvec;

use super::matrices::{Matrices, cases};
use super::*;
use crate::case::{Case, Fill};
use crate::{Named, OpDef, OpType, ResultTypes, Signature};

/// `eᴬ = Σ Aⁱ / i!` of each square matrix `[…, n, n]`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct MatrixExp;

impl OpDef for MatrixExp {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::LinearAlgebra)
    }

    fn macs(&self, s: &Signature) -> usize {
        Matrices::macs(s).saturating_mul(10)
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [a] = operands(Self::NAME, inputs)?;
        let a = Matrices::square(Self::NAME, a)?;
        Ok(smallvec![a.matrix(a.rows, a.rows)])
    }
}

impl Named for MatrixExp {
    const NAME: &'static str = "matrix_exp";

    fn cases() -> Vec<Case> {
        let fill = Fill::Uniform(-2.0, 2.0);
        cases([Self], fill, |[m, n]| m == n)
    }
}
