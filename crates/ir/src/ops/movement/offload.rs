use smallvec::smallvec;

use crate::case::{Case, elementwise};
use crate::ops::*;
use crate::{Graph, Named, OpDef, OpType, ResultTypes, Results, Signature, ValueId};

/// The same elements in the host's memory, as far as the device reaches it, until a
/// [`Reload`](super::Reload) brings them back. Meanwhile they take none of the device's memory.
///
/// A device without a kernel keeps the value in place.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Offload;

impl OpDef for Offload {
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

    fn offloads(&self) -> bool {
        true
    }

    fn is_composite(&self) -> bool {
        true
    }

    fn decompose(&self, _: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError> {
        Ok(smallvec![inputs[0]])
    }
}

impl Named for Offload {
    const NAME: &'static str = "offload";

    fn cases() -> Vec<Case> {
        elementwise(&Self.into(), &DType::SCALARS, |x| x)
    }
}
