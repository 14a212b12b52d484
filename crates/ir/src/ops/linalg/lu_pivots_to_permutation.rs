use smallvec::smallvec;

use crate::autodiff::{Cotangents, Differentiated, not_differentiable};
use crate::case::{Case, CaseOperand, Fill};
use crate::ops::*;
use crate::{Graph, Named, OpDef, OpType, ResultTypes};

/// The permutation that results from exchanging rows one after the other. The operand is `i32`
/// `[…, k]` as [`Lu`] gives it: the row, from 1, that each row in turn is exchanged with. The result
/// is `i64` `[…, rows]`: for each of `rows` places, the number, from 0, of the row that is there in
/// the end.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct LuPivotsToPermutation {
    /// Rows of the matrices, at least `k`.
    pub rows: usize,
}

impl OpDef for LuPivotsToPermutation {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::LinearAlgebra)
    }

    fn is_of_processor(&self) -> bool {
        true
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [pivots] = operands(Self::NAME, inputs)?;
        let count = pivots.shape.last().copied();
        let fits = pivots.dtype == DType::I32 && count.is_some_and(|count| count <= self.rows);
        let expected = format_args!("pivots of i32, at most {} for each matrix", self.rows);
        require(Self::NAME, fits, expected, pivots)?;
        let shape = pivots.shape.clone().with_dim(pivots.rank() - 1, self.rows);
        Ok(smallvec![TensorType::new(shape, DType::I64)])
    }

    fn vjp(&self, _: &mut Graph, _: &Differentiated) -> Result<Cotangents, OpError> {
        Err(not_differentiable(Self::NAME, "it gives integers"))
    }
}

impl Named for LuPivotsToPermutation {
    const NAME: &'static str = "lu_pivots_to_permutation";

    fn cases() -> Vec<Case> {
        let case = |rows, shape: &[usize]| {
            let pivots = CaseOperand::new(shape, DType::I32).fill(Fill::Ints(1, rows as i64 + 1));
            Case::new(Self { rows }, [pivots])
        };
        vec![
            case(1, &[1]),
            case(7, &[7]),
            case(9, &[2, 3, 4]),
            case(3, &[0]),
            case(3, &[0, 2]),
        ]
    }
}
