use smallvec::smallvec;

use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{ARRANGEMENTS, Case, CaseOperand, Fill};
use crate::ops::ReduceOp;
use crate::ops::*;
use crate::{Graph, Named, OpDef, OpType, ResultTypes, Results, ValueId};

/// `exp(x - max) / Σ exp(x - max)` along a dimension of a floating-point tensor, or its logarithm,
/// `x - max - log Σ exp(x - max)`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Softmax {
    /// The dimension.
    pub dim: usize,
    /// The logarithm?
    pub log: bool,
}

impl OpDef for Softmax {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::Normalization)
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [x] = operands(Self::NAME, inputs)?;
        require_float(Self::NAME, x)?;
        require_dim(Self::NAME, x, self.dim)?;
        require(Self::NAME, x.shape[self.dim] > 0, "at least one element", x)?;
        Ok(smallvec![x.clone()])
    }

    fn is_composite(&self) -> bool {
        true
    }

    fn decompose(&self, g: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError> {
        let dtype = g.ty(inputs[0]).dtype;
        let x = g.cast(inputs[0], compute_dtype(dtype))?;
        let max = g.reduce(ReduceOp::Max, x, self.dim)?;
        let shifted = g.sub(x, max)?;
        let exp = g.unary(UnaryOp::Exp, shifted)?;
        let sum = g.reduce(ReduceOp::Sum, exp, self.dim)?;
        let y = match self.log {
            true => {
                let log = g.unary(UnaryOp::Log, sum)?;
                g.sub(shifted, log)?
            }
            false => g.div(exp, sum)?,
        };
        Ok(smallvec![g.cast(y, dtype)?])
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        let dtype = compute_dtype(g.ty(node.inputs[0]).dtype);
        let ct = node.cotangent(g, 0)?;
        let [y, ct] = [g.cast(node.results[0], dtype)?, g.cast(ct, dtype)?];
        node.each(g, |g, _| match self.log {
            true => {
                let total = g.reduce(ReduceOp::Sum, ct, self.dim)?;
                let weights = g.unary(UnaryOp::Exp, y)?;
                let part = g.mul(weights, total)?;
                g.sub(ct, part)
            }
            false => {
                let weighted = g.mul(ct, y)?;
                let total = g.reduce(ReduceOp::Sum, weighted, self.dim)?;
                let change = g.sub(ct, total)?;
                g.mul(change, y)
            }
        })
    }
}

impl Named for Softmax {
    const NAME: &'static str = "softmax";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for (dtype, log) in DType::FLOATS
            .into_iter()
            .flat_map(|dtype| [(dtype, false), (dtype, true)])
        {
            let of = |dim| Self { dim, log };
            for dim in 0..3 {
                for arrange in ARRANGEMENTS {
                    let x = CaseOperand::new([3, 4, 9], dtype).arrange(arrange);
                    cases.push(Case::new(of(dim), [x]));
                }
            }
            let large = CaseOperand::new([2, 300], dtype).fill(Fill::Uniform(-1000.0, 1000.0));
            cases.push(Case::new(of(1), [large]));
            let masked = CaseOperand::new([4, 70], dtype).fill(Fill::Mask);
            cases.push(Case::new(of(1), [masked]));
            for (shape, dim) in [([2, 9000], 1), ([9000, 3], 0)] {
                cases.push(Case::new(of(dim), [CaseOperand::new(shape, dtype)]));
            }
            cases.push(Case::new(of(1), [CaseOperand::new([0, 3], dtype)]));
            cases.push(Case::new(of(0), [CaseOperand::new([1], dtype)]));
        }
        cases
    }
}
