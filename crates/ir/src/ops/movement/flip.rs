use smallvec::{SmallVec, smallvec};

use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{ARRANGEMENTS, Case, CaseOperand};
use crate::ops::*;
use crate::{Graph, Named, OpDef, OpType, ResultTypes, Results, Scalar, ValueId};

/// Some dimensions in reverse order: `torch.flip`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Flip {
    /// The dimensions, in ascending order.
    pub dims: SmallVec<[usize; 6]>,
}

impl OpDef for Flip {
    fn op_type(&self) -> Option<OpType> {
        None
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [x] = operands(Self::NAME, inputs)?;
        require_scalar(Self::NAME, x)?;
        require_dims(Self::NAME, x, &self.dims)?;
        Ok(smallvec![x.clone()])
    }

    fn is_composite(&self) -> bool {
        true
    }

    fn decompose(&self, g: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError> {
        let mut y = inputs[0];
        for &dim in &self.dims {
            let len = g.ty(y).shape[dim];
            let backwards = Arange {
                start: Scalar::Int(len as i64 - 1),
                step: Scalar::Int(-1),
                len,
                dtype: DType::I64,
            };
            let index = g.push(backwards, &[])?;
            y = g.push(IndexSelect { dim }, &[y, index])?;
        }
        Ok(smallvec![y])
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        let ct = node.cotangent(g, 0)?;
        node.each(g, |g, _| g.push(self.clone(), &[ct]))
    }
}

impl Named for Flip {
    const NAME: &'static str = "flip";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for dtype in DType::SCALARS {
            for dims in [&[][..], &[0], &[2], &[0, 2], &[0, 1, 2]] {
                for arrange in ARRANGEMENTS {
                    let x = CaseOperand::new([3, 4, 9], dtype).arrange(arrange);
                    cases.push(Case::new(Self { dims: dims.into() }, [x]));
                }
            }
            for shape in [&[][..], &[1], &[0, 3], &[700]] {
                let dims = (0..shape.len()).collect();
                cases.push(Case::new(Self { dims }, [CaseOperand::new(shape, dtype)]));
            }
        }
        cases
    }
}
