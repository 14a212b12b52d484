use smallvec::smallvec;

use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{ARRANGEMENTS, Case, CaseOperand};
use crate::ops::*;
use crate::{Graph, Named, OpDef, OpType, ResultTypes, Scalar, Signature};
use smallvec::SmallVec;

/// One value added around a tensor.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Pad {
    /// The numbers of indices added before and after each dimension.
    pub padding: SmallVec<[(usize, usize); 6]>,
    /// The value of the new elements.
    pub value: Scalar,
}

impl OpDef for Pad {
    fn op_type(&self) -> Option<OpType> {
        None
    }

    fn only_moves(&self, _signature: &Signature) -> bool {
        true
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [x] = operands(Self::NAME, inputs)?;
        require_scalar(Self::NAME, x)?;
        let expected = format_args!("a padding for each of {} dimensions", x.rank());
        require(
            Self::NAME,
            self.padding.len() == x.rank(),
            expected,
            self.padding.len(),
        )?;
        let grow = |(&n, &(a, b)): (&usize, &(usize, usize))| n.checked_add(a)?.checked_add(b);
        let shape = (x.shape.iter().zip(&self.padding))
            .map(grow)
            .collect::<Option<_>>()
            .ok_or_else(|| OpError::new(Self::NAME, "sizes that fit", "an overflow"))?;
        Ok(smallvec![TensorType {
            shape,
            dtype: x.dtype,
        }])
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        let mut ct = node.cotangent(g, 0)?;
        let shape = g.ty(node.inputs[0]).shape.clone();
        for (dim, (&size, &(before, after))) in shape.iter().zip(&self.padding).enumerate() {
            if before + after > 0 {
                ct = g.slice(ct, dim, before, before + size)?;
            }
        }
        node.each(g, |_, _| Ok(ct))
    }
}

impl Named for Pad {
    const NAME: &'static str = "pad";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for dtype in DType::SCALARS {
            for arrange in ARRANGEMENTS {
                let padding = [(1, 0), (0, 2), (3, 1)].into_iter().collect();
                let value = Scalar::Int(1);
                let x = CaseOperand::new([2, 3, 4], dtype).arrange(arrange);
                cases.push(Case::new(Self { padding, value }, [x]));
            }
            let padding = [(2, 1)].into_iter().collect();
            let value = Scalar::Int(0);
            cases.push(Case::new(
                Self { padding, value },
                [CaseOperand::new([0], dtype)],
            ));
        }
        cases
    }
}
