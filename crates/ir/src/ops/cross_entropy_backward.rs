use smallvec::smallvec;

use super::cross_entropy::others;
use super::*;
use crate::case::{ARRANGEMENTS, Case, Fill, Operand};
use crate::{Graph, Named, OpDef, OpType, ResultTypes, Results, Shape, ValueId};

/// The gradient of a [`CrossEntropy`]'s `x`: `ct · (softmax(x) - is_class)`, and 0 where the class is the one to be
/// ignored.
///
/// Operands: `x` and the class, as the loss has them; `ct`, the gradient of the loss, of its type. The result is of
/// `x`'s type. Another class than there is has a gradient without any class.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CrossEntropyBackward {
    /// The loss.
    pub loss: CrossEntropy,
}

impl OpDef for CrossEntropyBackward {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::Normalization)
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [x, class, ct] = operands(Self::NAME, inputs)?;
        let renamed = |e| OpError {
            op: Self::NAME,
            ..e
        };
        let loss = self.loss.infer(&[x, class]).map_err(renamed)?;
        let expected = format_args!("a gradient {}", loss[0]);
        require(Self::NAME, *ct == loss[0], expected, ct)?;
        Ok(smallvec![x.clone()])
    }

    fn is_composite(&self) -> bool {
        true
    }

    fn decompose(&self, g: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError> {
        let [x, class, ct] = [inputs[0], inputs[1], inputs[2]];
        let CrossEntropy { dim, ignore_index } = self.loss;
        let ty = g.ty(x).clone();
        let x = g.cast(x, compute_dtype(ty.dtype))?;
        let weights = g.push(Softmax { dim, log: false }, &[x])?;
        let mut along: Shape = ty.shape.iter().map(|_| 1).collect();
        along.to_mut()[dim] = ty.shape[dim];
        let classes = g.arange(ty.shape[dim], DType::I64)?;
        let classes = g.reshape(classes, along)?;
        let class = g.unsqueeze(class, dim)?;
        let is_class = g.compare(CompareOp::Eq, classes, class)?;
        let less = g.add_scalar(weights, -1.0)?;
        let change = g.select(is_class, less, weights)?;
        let ignored = g.constant(ignore_index, DType::I64)?;
        let counts = g.compare(CompareOp::Ne, class, ignored)?;
        let ct = g.unsqueeze(ct, dim)?;
        let zero = g.constant(0.0, g.ty(ct).dtype)?;
        let ct = g.select(counts, ct, zero)?;
        let dx = g.mul(ct, change)?;
        Ok(smallvec![g.cast(dx, ty.dtype)?])
    }
}

impl Named for CrossEntropyBackward {
    const NAME: &'static str = "cross_entropy_backward";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for dtype in DType::FLOATS {
            let mut push = |x: Operand, dim, ignore_index, arrange| {
                let shape = others(&x.ty, dim);
                let classes = x.ty.shape[dim] as i64;
                let class = Operand::new(shape.clone(), DType::I64).fill(Fill::Ints(0, classes));
                let ct = Operand::new(shape, compute_dtype(dtype));
                let operands = [x, class, ct].map(|operand| operand.arrange(arrange));
                let loss = CrossEntropy { dim, ignore_index };
                cases.push(Case::new(Self { loss }, operands));
            };
            for arrange in ARRANGEMENTS {
                for dim in 0..3 {
                    push(Operand::new([3, 4, 9], dtype), dim, -100, arrange);
                    push(Operand::new([5, 3, 4], dtype), dim, 1, arrange);
                }
            }
            let contiguous = ARRANGEMENTS[0];
            push(Operand::new([7], dtype), 0, -100, contiguous);
            push(Operand::new([3, 64], dtype), 1, 2, contiguous);
            push(Operand::new([2, 9000], dtype), 1, -100, contiguous);
            push(Operand::new([2, 9001], dtype), 1, -100, contiguous);
            push(Operand::new([9000, 3], dtype), 0, -100, contiguous);
            push(Operand::new([0, 3], dtype), 1, -100, contiguous);
            let large = Operand::new([4, 300], dtype).fill(Fill::Uniform(-1000.0, 1000.0));
            push(large, 1, -100, contiguous);
        }
        cases
    }
}
