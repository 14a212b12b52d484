use smallvec::smallvec;

use crate::case::{Case, elementwise};
use crate::ops::*;
use crate::{Graph, Named, OpDef, OpType, ResultTypes, Results, Signature, ValueId};

/// The same elements in the device's memory, from an [`Offload`](super::Offload) in the host's.
///
/// A device without a kernel reads the value in place.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Reload;

impl OpDef for Reload {
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

    fn reloads(&self) -> bool {
        true
    }

    fn is_composite(&self) -> bool {
        true
    }

    fn decompose(&self, _: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError> {
        Ok(smallvec![inputs[0]])
    }
}

impl Named for Reload {
    const NAME: &'static str = "reload";

    fn cases() -> Vec<Case> {
        elementwise(&Self.into(), &DType::SCALARS, |x| x)
    }
}
