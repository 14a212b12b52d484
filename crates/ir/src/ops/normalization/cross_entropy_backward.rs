use smallvec::smallvec;

use super::cross_entropy::others;
use crate::case::{ARRANGEMENTS, Case, CaseOperand, Fill};
use crate::ops::*;
use crate::passes::{Finder, Match};
use crate::{Graph, Named, Op, OpDef, OpKind, OpType, ResultTypes, Results, Shape, ValueId};

/// The gradient of a [`CrossEntropy`]'s `x`: `ct · (softmax(x) - is_class)`, and 0 where the class is the one to be
/// ignored.
///
/// Operands: `x` and the class, as the loss has them; `ct`, the gradient of the loss, of its type. Results: the
/// gradient, of `x`'s type, and after it the loss, on request. A class out of range has a gradient without any
/// class. If the loss is a result, such a class is the caller's mistake.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CrossEntropyBackward {
    /// The loss.
    pub loss: CrossEntropy,
    /// Whether the loss is also a result, from the same pass over `x`.
    pub also_loss: bool,
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
        let loss = self.also_loss.then(|| loss[0].clone());
        Ok([x.clone()].into_iter().chain(loss).collect())
    }

    fn is_composite(&self) -> bool {
        true
    }

    fn replaces(&self) -> Vec<OpKind> {
        match self.also_loss {
            true => vec![OpKind::CrossEntropy, OpKind::CrossEntropyBackward],
            false => Vec::new(),
        }
    }

    fn decompose(&self, g: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError> {
        let [x, class, ct] = [inputs[0], inputs[1], inputs[2]];
        if self.also_loss {
            let loss = g.push(self.loss.clone(), &[x, class])?;
            let alone = Self {
                also_loss: false,
                ..self.clone()
            };
            return Ok(smallvec![g.push(alone, inputs)?, loss]);
        }
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

/// A cross entropy and its gradient, where that is by a factor which does not follow from the loss.
pub(crate) fn cross_entropy_backward(f: &Finder, at: usize) -> Vec<Match> {
    let Op::CrossEntropy(loss) = f.op(at) else {
        return Vec::new();
    };
    let operands = f.operands(at);
    let readers = f.readers(operands[0]).iter();
    let found = readers.filter_map(|&reader| {
        let Op::CrossEntropyBackward(op) = f.op(reader) else {
            return None;
        };
        let fits = !op.also_loss && op.loss == *loss && f.operands(reader)[..2] == *operands;
        let op = CrossEntropyBackward {
            also_loss: true,
            ..op.clone()
        };
        fits.then(|| Match {
            op: op.into(),
            inputs: f.operands(reader).into(),
            nodes: smallvec![at, reader],
            results: smallvec![f.result(reader), f.result(at)],
        })
    });
    found.collect()
}

impl Named for CrossEntropyBackward {
    const NAME: &'static str = "cross_entropy_backward";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for dtype in DType::FLOATS {
            let mut push = |x: CaseOperand, dim, ignore_index, arrange| {
                let shape = others(&x.ty, dim);
                let classes = x.ty.shape[dim] as i64;
                let class =
                    CaseOperand::new(shape.clone(), DType::I64).fill(Fill::Ints(0, classes));
                let ct = CaseOperand::new(shape, compute_dtype(dtype));
                let operands = [x, class, ct].map(|operand| operand.arrange(arrange));
                for also_loss in [false, true] {
                    let loss = CrossEntropy { dim, ignore_index };
                    cases.push(Case::new(Self { loss, also_loss }, operands.clone()));
                }
            };
            for arrange in ARRANGEMENTS {
                for dim in 0..3 {
                    push(CaseOperand::new([3, 4, 9], dtype), dim, -100, arrange);
                    push(CaseOperand::new([5, 3, 4], dtype), dim, 1, arrange);
                }
            }
            let contiguous = ARRANGEMENTS[0];
            push(CaseOperand::new([7], dtype), 0, -100, contiguous);
            push(CaseOperand::new([3, 64], dtype), 1, 2, contiguous);
            push(CaseOperand::new([2, 9000], dtype), 1, -100, contiguous);
            push(CaseOperand::new([2, 9001], dtype), 1, -100, contiguous);
            push(CaseOperand::new([9000, 3], dtype), 0, -100, contiguous);
            push(CaseOperand::new([0, 3], dtype), 1, -100, contiguous);
            let large = CaseOperand::new([4, 300], dtype).fill(Fill::Uniform(-1000.0, 1000.0));
            push(large, 1, -100, contiguous);
        }
        cases
    }
}
