use smallvec::smallvec;

use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{ARRANGEMENTS, Case, CaseOperand};
use crate::ops::*;
use crate::{Graph, Layout, Named, OpDef, OpType, ResultTypes, Role, Shape};

/// Broadcasts to a shape: `torch.broadcast_to`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Expand {
    /// Shape of the result.
    pub shape: Shape,
}

impl OpDef for Expand {
    fn op_type(&self) -> Option<OpType> {
        None
    }

    fn role(&self) -> Role {
        Role::View
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [x] = operands(Self::NAME, inputs)?;
        require_scalar(Self::NAME, x)?;
        let fits = crate::broadcast_shapes(Self::NAME, &x.shape, &self.shape)? == self.shape;
        let expected = format_args!("a shape that {x} broadcasts to");
        require(Self::NAME, fits, expected, &self.shape)?;
        Ok(smallvec![TensorType::new(self.shape.clone(), x.dtype)])
    }

    fn view(&self, input: &Layout) -> Option<Layout> {
        Some(input.broadcast_to(&self.shape))
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        // The sum over what was broadcast comes behind every operation's.
        let ct = node.cotangent(g, 0)?;
        node.each(g, |_, _| Ok(ct))
    }
}

impl Named for Expand {
    const NAME: &'static str = "expand";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for dtype in DType::SCALARS {
            for arrange in ARRANGEMENTS {
                let shape = [2, 3, 5].into();
                let x = CaseOperand::new([3, 1], dtype).arrange(arrange);
                cases.push(Case::new(Self { shape }, [x]));
            }
            let shape = [0, 4].into();
            cases.push(Case::new(Self { shape }, [CaseOperand::new([], dtype)]));
        }
        cases
    }
}
