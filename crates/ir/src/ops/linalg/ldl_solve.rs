use smallvec::smallvec;

use super::matrices::Matrices;
use crate::autodiff::{Cotangents, Differentiated, not_differentiable};
use crate::case::{Arrange, Case, CaseOperand, Fill};
use crate::ops::*;
use crate::{Graph, Named, OpDef, OpType, ResultTypes, Signature};

/// Solves `A·X = B` with the factors `[…, n, n]` and pivots `[…, n]` of [`Ldl`]. `B` is `[…, n, k]`
/// with the same leading dimensions. A pivot that is not a row is the caller's mistake.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct LdlSolve {
    /// Whether the factors are those of Hermitian matrices.
    pub hermitian: bool,
}

impl OpDef for LdlSolve {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::LinearAlgebra)
    }

    fn is_of_processor(&self) -> bool {
        true
    }

    fn macs(&self, s: &Signature) -> usize {
        let n = s.inputs[0].shape.last().map_or(0, |&n| n);
        s.output().shape.elements().saturating_mul(n)
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [factors, pivots, b] = operands(Self::NAME, inputs)?;
        require_same(Self::NAME, factors, b)?;
        let got = format_args!("{factors}, {pivots} and {b}");
        let factors = Matrices::square(Self::NAME, factors)?;
        let b = Matrices::of(Self::NAME, b)?;
        let fits = factors.batch == b.batch
            && factors.rows == b.rows
            && *pivots == factors.vector(factors.rows, DType::I32);
        let expected =
            "matrices of equal rows and leading dimensions, and a pivot (i32) for each row";
        require(Self::NAME, fits, expected, got)?;
        Ok(smallvec![b.matrix(b.rows, b.columns)])
    }

    fn vjp(&self, _: &mut Graph, _: &Differentiated) -> Result<Cotangents, OpError> {
        Err(not_differentiable(
            Self::NAME,
            "PyTorch has no gradient of it either",
        ))
    }
}

impl Named for LdlSolve {
    const NAME: &'static str = "ldl_solve";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for dtype in Matrices::DTYPES {
            for hermitian in [false, true] {
                let mut push = |batch: &[usize], n: usize, k: usize, pivots: Fill| {
                    let shape = |matrix: &[usize]| [batch, matrix].concat();
                    let factors = CaseOperand::new(shape(&[n, n]), dtype).fill(Fill::Dominant);
                    let pivots = CaseOperand::new(shape(&[n]), DType::I32).fill(pivots);
                    let b = CaseOperand::new(shape(&[n, k]), dtype).arrange(Arrange::Strided);
                    cases.push(Case::new(Self { hermitian }, [factors, pivots, b]));
                };
                push(&[], 1, 1, Fill::Ints(1, 2));
                push(&[], 5, 3, Fill::Ints(1, 6));
                push(&[2, 3], 6, 1, Fill::Ints(1, 7));
                // Blocks of 2 × 2.
                push(&[], 2, 2, Fill::Ints(-2, -1));
                push(&[2], 6, 3, Fill::Ints(-6, 0));
                push(&[], 0, 2, Fill::Ints(1, 2));
                push(&[0], 4, 2, Fill::Ints(1, 2));
                push(&[], 4, 0, Fill::Ints(1, 5));
            }
        }
        cases
    }
}
