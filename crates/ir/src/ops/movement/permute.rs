use smallvec::smallvec;

use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{ARRANGEMENTS, Case, CaseOperand};
use crate::ops::*;
use crate::order::sort_by_key;
use crate::{Graph, Layout, Named, OpDef, OpType, ResultTypes, Role};
use smallvec::SmallVec;

/// Dimensions in another order: `torch.permute`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Permute {
    /// For each dimension of the result, the dimension of the operand it is.
    pub dims: SmallVec<[usize; 6]>,
}

impl OpDef for Permute {
    fn op_type(&self) -> Option<OpType> {
        None
    }

    fn role(&self) -> Role {
        Role::View
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [x] = operands(Self::NAME, inputs)?;
        require_scalar(Self::NAME, x)?;
        let mut sorted = self.dims.clone();
        sort_by_key(&mut sorted, |dim| *dim);
        let valid = sorted.iter().copied().eq(0..x.rank());
        let expected = format_args!("each dimension of {x} once");
        require(Self::NAME, valid, expected, format_args!("{:?}", self.dims))?;
        let shape = self.dims.iter().map(|&d| x.shape[d]).collect();
        Ok(smallvec![TensorType {
            shape,
            dtype: x.dtype,
        }])
    }

    fn view(&self, input: &Layout) -> Option<Layout> {
        Some(input.permute(&self.dims))
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        let ct = node.cotangent(g, 0)?;
        let mut inverse = self.dims.clone();
        for (to, &from) in self.dims.iter().enumerate() {
            inverse[from] = to;
        }
        node.each(g, |g, _| g.permute(ct, &inverse))
    }
}

impl Named for Permute {
    const NAME: &'static str = "permute";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for dtype in DType::SCALARS {
            for arrange in ARRANGEMENTS {
                let dims = [2, 0, 1].into_iter().collect();
                let x = CaseOperand::new([2, 3, 4], dtype).arrange(arrange);
                cases.push(Case::new(Self { dims }, [x]));
            }
        }
        cases
    }
}
