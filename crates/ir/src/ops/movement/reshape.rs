use smallvec::smallvec;

use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{ARRANGEMENTS, Case, CaseOperand};
use crate::ops::*;
use crate::{Graph, Layout, Named, OpDef, OpType, ResultTypes, Role, Shape};

/// The same elements, in row-major order, in another shape: `torch.reshape`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Reshape {
    /// Shape of the result.
    pub shape: Shape,
}

impl OpDef for Reshape {
    fn op_type(&self) -> Option<OpType> {
        None
    }

    fn role(&self) -> Role {
        Role::View
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [x] = operands(Self::NAME, inputs)?;
        let out = TensorType::new(self.shape.clone(), x.dtype);
        let same = self.shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
        let same = same == Some(x.shape.elements());
        let expected = format_args!("a shape of {} elements", x.shape.elements());
        require(Self::NAME, same, expected, &self.shape)?;
        let rows = !x.dtype.is_block() || x.shape.last() == self.shape.last();
        require(Self::NAME, rows, "the rows of blocks kept whole", &out)?;
        Ok(smallvec![out])
    }

    fn view(&self, input: &Layout) -> Option<Layout> {
        input.reshape(&self.shape)
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        let ct = node.cotangent(g, 0)?;
        node.each(g, |g, _| g.reshape(ct, g.ty(node.inputs[0]).shape.clone()))
    }
}

impl Named for Reshape {
    const NAME: &'static str = "reshape";

    fn cases() -> Vec<Case> {
        let case = |shape: &[usize], x| {
            Case::new(
                Self {
                    shape: shape.into(),
                },
                [x],
            )
        };
        let mut cases = vec![
            case(&[], CaseOperand::new([1, 1], DType::F32)),
            case(&[0, 7], CaseOperand::new([3, 0], DType::F32)),
        ];
        for dtype in DType::SCALARS {
            for arrange in ARRANGEMENTS {
                let x = CaseOperand::new([4, 6], dtype).arrange(arrange);
                cases.push(case(&[2, 3, 4], x));
            }
        }
        cases
    }
}
