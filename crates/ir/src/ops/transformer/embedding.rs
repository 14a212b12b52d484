use smallvec::smallvec;

use crate::case::{Case, CaseOperand, Fill};
use crate::ops::*;
use crate::{BlockFormat, Graph, Named, OpDef, OpType, ResultTypes, Results, ValueId};

/// Rows of a table: `torch.nn.functional.embedding`.
///
/// Operands: `table` `[v, d]`, floating point or a block format; `ids` of any shape, `i64`
/// or `i32`. Result: `ids`' shape and `d`. An id outside the table is the caller's mistake.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Embedding {
    /// Type of the result, floating point.
    pub dtype: DType,
}

impl OpDef for Embedding {
    fn op_type(&self) -> Option<OpType> {
        None
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [table, ids] = operands(Self::NAME, inputs)?;
        let weights = table.dtype.is_float() || table.dtype.is_block();
        require(
            Self::NAME,
            weights && table.rank() == 2,
            "a float or block table [v, d]",
            table,
        )?;
        require_index(Self::NAME, ids)?;
        require(
            Self::NAME,
            self.dtype.is_float(),
            "a float dtype",
            self.dtype,
        )?;
        let mut shape = ids.shape.clone();
        shape.to_mut().push(table.shape[1]);
        Ok(smallvec![TensorType::new(shape, self.dtype)])
    }

    fn is_composite(&self) -> bool {
        true
    }

    fn decompose(&self, g: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError> {
        let ids = g.ty(inputs[1]).shape.clone();
        let width = g.ty(inputs[0]).shape[1];
        let table = g.cast(inputs[0], self.dtype)?;
        let flat = g.reshape(inputs[1], [ids.elements()])?;
        let rows = g.push(IndexSelect { dim: 0 }, &[table, flat])?;
        let mut shape = ids;
        shape.to_mut().push(width);
        Ok(smallvec![g.reshape(rows, shape)?])
    }
}

impl Named for Embedding {
    const NAME: &'static str = "embedding";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        let blocks = BlockFormat::ALL.iter().map(|&f| DType::Block(f));
        for table in DType::FLOATS.into_iter().chain(blocks) {
            for ids in [&[][..], &[1], &[0], &[2, 5]] {
                for index in [DType::I32, DType::I64] {
                    let ids = CaseOperand::new(ids, index).fill(Fill::Ints(0, 7));
                    let table = CaseOperand::new([7, 256], table);
                    cases.push(Case::new(Self { dtype: DType::F32 }, [table, ids]));
                }
            }
        }
        cases
    }
}
