use smallvec::smallvec;

use super::*;
use crate::autodiff::{Cotangents, Differentiated, not_differentiable};
use crate::case::Case;
use crate::{Graph, Named, Op, OpDef, OpType, ResultTypes, Scalar};

/// `start + i · step` for `i` from 0 up to `len`. No operands; result `[len]`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Arange {
    /// The first element.
    pub start: Scalar,
    /// Difference between neighbours.
    pub step: Scalar,
    /// Number of elements.
    pub len: usize,
    /// Type of the result.
    pub dtype: DType,
}

/// Floats up to this are whole numbers, each of them.
const EXACT: f64 = (1_i64 << 53) as f64;

impl Arange {
    /// Returns whether all elements are exact whole numbers in double precision.
    fn is_exact(&self) -> bool {
        let (start, step) = (self.start.as_f64(), self.step.as_f64());
        let farthest = start.abs() + step.abs() * self.len as f64;
        self.dtype.is_int() || start.fract() == 0.0 && step.fract() == 0.0 && farthest < EXACT
    }
}

impl OpDef for Arange {
    fn op_type(&self) -> Option<OpType> {
        None
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        operands::<0>(Self::NAME, inputs)?;
        let out = TensorType::new([self.len], self.dtype);
        require(
            Self::NAME,
            self.dtype.is_float() || self.dtype.is_int(),
            "an integer or floating-point dtype",
            self.dtype,
        )?;
        Ok(smallvec![out])
    }

    fn seen(&self, view: &Op, ty: &TensorType) -> Option<Op> {
        let Op::Slice(slice) = view else { return None };
        let (start, step) = (self.start.as_i64(), self.step.as_i64());
        let skipped = step.wrapping_mul(slice.start as i64);
        let seen = Self {
            start: start.wrapping_add(skipped).into(),
            step: step.wrapping_mul(slice.step as i64).into(),
            len: ty.shape.elements(),
            dtype: self.dtype,
        };
        self.is_exact().then(|| seen.into())
    }

    fn vjp(&self, _: &mut Graph, _: &Differentiated) -> Result<Cotangents, OpError> {
        Err(not_differentiable(Self::NAME, "it has no operands"))
    }
}

impl Named for Arange {
    const NAME: &'static str = "arange";

    fn cases() -> Vec<Case> {
        let dtypes = DType::FLOATS.into_iter().chain(DType::INTS);
        let arange = |dtype, len| {
            let (start, step) = (Scalar::Int(2), Scalar::Int(3));
            Case::new(
                Self {
                    start,
                    step,
                    len,
                    dtype,
                },
                [],
            )
        };
        dtypes
            .flat_map(|d| [0, 1, 37].map(|len| arange(d, len)))
            .collect()
    }
}
