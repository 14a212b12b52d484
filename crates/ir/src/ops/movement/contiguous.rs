use smallvec::smallvec;

use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{Case, elementwise};
use crate::ops::*;
use crate::{Graph, Named, OpDef, OpType, ResultTypes, Signature};

/// The same elements copied to row-major order without gaps.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Contiguous;

impl OpDef for Contiguous {
    fn op_type(&self) -> Option<OpType> {
        None
    }

    fn only_moves(&self, _signature: &Signature) -> bool {
        true
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [x] = operands(Self::NAME, inputs)?;
        require_scalar(Self::NAME, x)?;
        Ok(smallvec![x.clone()])
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        let ct = node.cotangent(g, 0)?;
        node.each(g, |_, _| Ok(ct))
    }
}

impl Named for Contiguous {
    const NAME: &'static str = "contiguous";

    fn cases() -> Vec<Case> {
        elementwise(&Self.into(), &DType::SCALARS, |x| x)
    }
}
