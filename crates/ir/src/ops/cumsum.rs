use smallvec::smallvec;

use super::*;
use crate::case::{ARRANGEMENTS, Case, Operand};
use crate::ops::ReduceOp;
use crate::{Named, OpDef, OpType, ResultTypes};

/// Running sum along a dimension; of integers and booleans an `i64`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Cumsum {
    /// The dimension.
    pub dim: usize,
}

impl OpDef for Cumsum {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::Reduction)
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [x] = operands(Self::NAME, inputs)?;
        require_scalar(Self::NAME, x)?;
        require_dim(Self::NAME, x, self.dim)?;
        let dtype = ReduceOp::Sum.output(x.dtype);
        Ok(smallvec![TensorType::new(x.shape.clone(), dtype)])
    }
}

impl Named for Cumsum {
    const NAME: &'static str = "cumsum";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for dtype in DType::SCALARS {
            for dim in 0..3 {
                for arrange in ARRANGEMENTS {
                    let x = Operand::new([3, 4, 9], dtype).arrange(arrange);
                    cases.push(Case::new(Self { dim }, [x]));
                }
            }
            cases.push(Case::new(Self { dim: 0 }, [Operand::new([0, 2], dtype)]));
        }
        // Few long lines.
        for (shape, dim) in [([2, 9000], 1), ([9000, 3], 0)] {
            cases.push(Case::new(Self { dim }, [Operand::new(shape, DType::F32)]));
        }
        cases
    }
}
