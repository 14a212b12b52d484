use smallvec::smallvec;

use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{ARRANGEMENTS, Case, CaseOperand};
use crate::ops::*;
use crate::{Graph, Named, OpDef, OpType, ResultTypes, Signature};

/// Writes all of `source` over the state `state`.
///
/// Operands: `state` and `source`, of one type, scalars. The result is the state.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Assign;

impl OpDef for Assign {
    fn op_type(&self) -> Option<OpType> {
        None
    }

    fn only_moves(&self, _signature: &Signature) -> bool {
        true
    }

    fn overwrites(&self, _result: usize) -> Option<usize> {
        Some(0)
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [state, source] = operands(Self::NAME, inputs)?;
        require_scalar(Self::NAME, state)?;
        let got = format_args!("{state} and {source}");
        require(Self::NAME, state == source, "two operands of one type", got)?;
        Ok(smallvec![state.clone()])
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        let ct = node.cotangent(g, 0)?;
        // Nothing of the old state is left.
        node.each(g, |g, i| match i {
            0 => g.zeros_like(ct),
            _ => Ok(ct),
        })
    }
}

impl Named for Assign {
    const NAME: &'static str = "assign";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for dtype in DType::SCALARS {
            for shape in [&[][..], &[1], &[0, 3], &[3, 70]] {
                let x = CaseOperand::new(shape, dtype);
                cases.push(Case::new(Self, [x.clone(), x]));
            }
            for arrange in ARRANGEMENTS {
                let x = CaseOperand::new([3, 5, 7], dtype);
                cases.push(Case::new(Self, [x.clone(), x.arrange(arrange)]));
            }
        }
        cases
    }
}
