use smallvec::smallvec;

use super::*;
use crate::autodiff::{Cotangents, Differentiated, not_differentiable};
use crate::case::Case;
use crate::{Graph, Named, Op, OpDef, OpType, ResultTypes, Scalar, Shape, Signature};

/// A tensor of one value. No operands.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Full {
    /// Shape of the result.
    pub shape: Shape,
    /// The value of every element.
    pub value: Scalar,
    /// Type of the result.
    pub dtype: DType,
}

impl OpDef for Full {
    fn op_type(&self) -> Option<OpType> {
        None
    }

    fn only_moves(&self, _signature: &Signature) -> bool {
        true
    }

    fn is_number(&self) -> bool {
        true
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        operands::<0>(Self::NAME, inputs)?;
        let out = TensorType::new(self.shape.clone(), self.dtype);
        require_scalar(Self::NAME, &out)?;
        Ok(smallvec![out])
    }

    fn seen(&self, _: &Op, ty: &TensorType) -> Option<Op> {
        let shape = ty.shape.clone();
        Some(Self { shape, ..*self }.into())
    }

    fn vjp(&self, _: &mut Graph, _: &Differentiated) -> Result<Cotangents, OpError> {
        Err(not_differentiable(Self::NAME, "it has no operands"))
    }
}

impl Named for Full {
    const NAME: &'static str = "full";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for dtype in DType::SCALARS {
            for shape in [[].as_slice(), &[0], &[3, 5]] {
                let value = Scalar::Int(1);
                let shape = shape.into();
                cases.push(Case::new(
                    Self {
                        shape,
                        value,
                        dtype,
                    },
                    [],
                ));
            }
        }
        let value = Scalar::Complex((-1.5).into(), 2.25.into());
        let (shape, dtype) = ([4].into(), DType::Complex64);
        cases.push(Case::new(
            Self {
                shape,
                value,
                dtype,
            },
            [],
        ));
        cases
    }
}
