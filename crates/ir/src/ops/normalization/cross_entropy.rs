use smallvec::smallvec;

use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{ARRANGEMENTS, Case, CaseOperand, Fill};
use crate::ops::*;
use crate::{Graph, Named, OpDef, OpType, ResultTypes, Results, Shape, ValueId};

/// `-log softmax(x)` of a class along a dimension; 0 for the ignored class.
///
/// Operands: `x`, floating point; the class, `i64`, of `x`'s shape without that dimension. The
/// result is of that shape and at least of single precision. An unknown class is the caller's
/// mistake, found at run time.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CrossEntropy {
    /// The dimension of the classes.
    pub dim: usize,
    /// The class that is left out.
    pub ignore_index: i64,
}

impl OpDef for CrossEntropy {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::Normalization)
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [x, class] = operands(Self::NAME, inputs)?;
        require_float(Self::NAME, x)?;
        require_dim(Self::NAME, x, self.dim)?;
        require(Self::NAME, x.shape[self.dim] > 0, "at least one class", x)?;
        let shape = others(x, self.dim);
        let fits = class.dtype == DType::I64 && class.shape == shape;
        let expected = format_args!("classes i64{shape}");
        require(Self::NAME, fits, expected, class)?;
        Ok(smallvec![TensorType::new(shape, compute_dtype(x.dtype))])
    }

    fn is_composite(&self) -> bool {
        true
    }

    fn decompose(&self, g: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError> {
        let [x, class] = [inputs[0], inputs[1]];
        let out = compute_dtype(g.ty(x).dtype);
        let x = g.cast(x, out)?;
        let log = Softmax {
            dim: self.dim,
            log: true,
        };
        let log = log.decompose(g, &[x])?[0];
        let shape = g.ty(class).shape.clone();
        let ignored = g.constant(self.ignore_index, DType::I64)?;
        let counts = g.compare(CompareOp::Ne, class, ignored)?;
        let first = g.constant(0, DType::I64)?;
        let place = g.select(counts, class, first)?;
        let line = g.ty(x).shape.clone().with_dim(self.dim, 1);
        let place = g.reshape(place, line)?;
        let chosen = g.push(Gather { dim: self.dim }, &[log, place])?;
        let chosen = g.reshape(chosen, shape)?;
        let loss = g.unary(UnaryOp::Neg, chosen)?;
        let zero = g.constant(0.0, out)?;
        Ok(smallvec![g.select(counts, loss, zero)?])
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        let ct = node.cotangent(g, 0)?;
        let backward = CrossEntropyBackward {
            loss: self.clone(),
            also_loss: false,
        };
        node.each(g, |g, _| {
            g.push(backward.clone(), &[node.inputs[0], node.inputs[1], ct])
        })
    }
}

/// The shape of `x` without a dimension.
pub(in crate::ops) fn others(x: &TensorType, dim: usize) -> Shape {
    let sizes = x.shape.iter().enumerate();
    sizes.filter(|&(d, _)| d != dim).map(|(_, &n)| n).collect()
}

impl Named for CrossEntropy {
    const NAME: &'static str = "cross_entropy";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for dtype in DType::FLOATS {
            let mut push = |x: CaseOperand, dim, ignore_index, arrange| {
                let shape = others(&x.ty, dim);
                let classes = x.ty.shape[dim] as i64;
                let class = CaseOperand::new(shape, DType::I64).fill(Fill::Ints(0, classes));
                let operands = [x.arrange(arrange), class.arrange(arrange)];
                cases.push(Case::new(Self { dim, ignore_index }, operands));
            };
            for arrange in ARRANGEMENTS {
                for dim in 0..3 {
                    push(CaseOperand::new([3, 4, 9], dtype), dim, -100, arrange);
                    push(CaseOperand::new([5, 3, 4], dtype), dim, 1, arrange);
                }
            }
            let contiguous = ARRANGEMENTS[0];
            push(CaseOperand::new([7], dtype), 0, -100, contiguous);
            push(CaseOperand::new([2, 9000], dtype), 1, -100, contiguous);
            push(CaseOperand::new([9000, 3], dtype), 0, -100, contiguous);
            push(CaseOperand::new([0, 3], dtype), 1, -100, contiguous);
            let large = CaseOperand::new([4, 300], dtype).fill(Fill::Uniform(-1000.0, 1000.0));
            push(large, 1, -100, contiguous);
        }
        cases
    }
}
