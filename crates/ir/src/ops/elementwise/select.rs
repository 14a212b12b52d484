use smallvec::smallvec;

use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{ARRANGEMENTS, Case, CaseOperand};
use crate::ops::*;
use crate::{Graph, Named, OpDef, OpType, ResultTypes, broadcast_shapes};

/// `a` where the `bool` operand `condition` is true, else `b`; all three broadcast.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Where;

impl OpDef for Where {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::Activation)
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [condition, a, b] = operands(Self::NAME, inputs)?;
        let is_bool = condition.dtype == DType::Bool;
        require(Self::NAME, is_bool, "a bool condition", condition)?;
        require_same(Self::NAME, a, b)?;
        require_scalar(Self::NAME, a)?;
        let shape = broadcast_shapes(Self::NAME, &a.shape, &b.shape)?;
        let shape = broadcast_shapes(Self::NAME, &condition.shape, &shape)?;
        Ok(smallvec![TensorType::new(shape, a.dtype)])
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        let ct = node.cotangent(g, 0)?;
        let zero = g.constant(0.0, g.ty(ct).dtype)?;
        node.each(g, |g, i| match i {
            1 => g.select(node.inputs[0], ct, zero),
            _ => g.select(node.inputs[0], zero, ct),
        })
    }
}

impl Named for Where {
    const NAME: &'static str = "where";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for dtype in DType::SCALARS {
            let c = |shape: &[usize]| CaseOperand::new(shape, DType::Bool);
            let x = |shape: &[usize]| CaseOperand::new(shape, dtype);
            let mut push = |c, a, b| cases.push(Case::new(Self, [c, a, b]));
            push(c(&[]), x(&[]), x(&[]));
            push(c(&[0, 2]), x(&[2]), x(&[]));
            push(c(&[3, 1]), x(&[1, 5]), x(&[2, 1, 1]));
            for arrange in ARRANGEMENTS {
                push(
                    c(&[4, 9]).arrange(arrange),
                    x(&[4, 9]),
                    x(&[9]).arrange(arrange),
                );
            }
        }
        cases
    }
}
