use smallvec::smallvec;

use super::cross_entropy::others;
use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{ARRANGEMENTS, Case, CaseOperand, Fill};
use crate::ops::*;
use crate::{Graph, Named, OpDef, OpType, ResultTypes, Results, Shape, ValueId};

/// The mean of a [`CrossEntropy`] over the classes that count, NaN if there are none. It is one
/// operation, because small losses are recorded faster so.
///
/// Operands: `x` and the class, as the loss has them. The result is of rank 0 and of the loss's dtype.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CrossEntropyMean {
    /// The loss.
    pub loss: CrossEntropy,
}

impl CrossEntropyMean {
    /// Number of counted classes, as a number of this dtype.
    fn count(&self, g: &mut Graph, class: ValueId, dtype: DType) -> Result<ValueId, OpError> {
        let ignored = g.constant(self.loss.ignore_index, DType::I64)?;
        let counts = g.compare(CompareOp::Ne, class, ignored)?;
        let counts = g.cast(counts, dtype)?;
        total(g, counts)
    }
}

/// The sum of all elements.
fn total(g: &mut Graph, x: ValueId) -> Result<ValueId, OpError> {
    let sum = Reduce {
        op: ReduceOp::Sum,
        dims: (0..g.ty(x).rank()).collect(),
        keepdim: false,
    };
    g.push(sum, &[x])
}

impl OpDef for CrossEntropyMean {
    fn op_type(&self) -> Option<OpType> {
        self.loss.op_type()
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let renamed = |e| OpError {
            op: Self::NAME,
            ..e
        };
        let loss = self.loss.infer(inputs).map_err(renamed)?;
        Ok(smallvec![TensorType::new([], loss[0].dtype)])
    }

    fn is_composite(&self) -> bool {
        true
    }

    fn decompose(&self, g: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError> {
        let loss = g.push(self.loss.clone(), inputs)?;
        let dtype = g.ty(loss).dtype;
        let count = self.count(g, inputs[1], dtype)?;
        let sum = total(g, loss)?;
        Ok(smallvec![g.div(sum, count)?])
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        let ct = node.cotangent(g, 0)?;
        let backward = CrossEntropyBackward {
            loss: self.loss.clone(),
            also_loss: false,
        };
        node.each(g, |g, _| {
            let [x, class] = [node.inputs[0], node.inputs[1]];
            let dtype = g.ty(ct).dtype;
            let count = self.count(g, class, dtype)?;
            let each = g.div(ct, count)?;
            let shape = g.ty(class).shape.clone();
            let each = g.push(Expand { shape }, &[each])?;
            g.push(backward.clone(), &[x, class, each])
        })
    }
}

impl Named for CrossEntropyMean {
    const NAME: &'static str = "cross_entropy_mean";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for dtype in DType::FLOATS {
            let mut push = |x: CaseOperand, dim, ignore_index, arrange| {
                let shape: Shape = others(&x.ty, dim);
                let classes = x.ty.shape[dim] as i64;
                let class = CaseOperand::new(shape, DType::I64).fill(Fill::Ints(0, classes));
                let operands = [x.arrange(arrange), class.arrange(arrange)];
                let loss = CrossEntropy { dim, ignore_index };
                cases.push(Case::new(Self { loss }, operands));
            };
            for arrange in ARRANGEMENTS {
                push(CaseOperand::new([3, 4, 9], dtype), 1, -100, arrange);
                push(CaseOperand::new([5, 3], dtype), 1, 1, arrange);
            }
            let contiguous = ARRANGEMENTS[0];
            push(CaseOperand::new([7], dtype), 0, -100, contiguous);
            push(CaseOperand::new([300, 65], dtype), 1, 2, contiguous);
            push(CaseOperand::new([0, 3], dtype), 1, -100, contiguous);
        }
        cases
    }
}
