use smallvec::smallvec;

use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{ARRANGEMENTS, Case, CaseOperand};
use crate::ops::*;
use crate::{Graph, Layout, Named, OpDef, OpType, ResultTypes, Role};

/// Every `step`-th index of one dimension, from `start` to `end`, exclusive.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Slice {
    /// The dimension.
    pub dim: usize,
    /// First index.
    pub start: usize,
    /// End of the range, at most the dimension's size.
    pub end: usize,
    /// Distance between chosen indices, at least 1.
    pub step: usize,
}

impl Slice {
    fn len(&self) -> usize {
        (self.end - self.start).div_ceil(self.step)
    }
}

impl OpDef for Slice {
    fn op_type(&self) -> Option<OpType> {
        None
    }

    fn role(&self) -> Role {
        Role::View
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [x] = operands(Self::NAME, inputs)?;
        require_scalar(Self::NAME, x)?;
        require_dim(Self::NAME, x, self.dim)?;
        let valid = self.start <= self.end && self.end <= x.shape[self.dim] && self.step > 0;
        let expected = format_args!("start <= end <= {} and step > 0", x.shape[self.dim]);
        let got = format_args!("{}..{} step {}", self.start, self.end, self.step);
        require(Self::NAME, valid, expected, got)?;
        let shape = x.shape.clone().with_dim(self.dim, self.len());
        Ok(smallvec![TensorType {
            shape,
            dtype: x.dtype,
        }])
    }

    fn view(&self, input: &Layout) -> Option<Layout> {
        Some(input.slice(self.dim, self.start, self.len(), self.step))
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        let ct = node.cotangent(g, 0)?;
        let size = g.ty(node.inputs[0]).shape[self.dim];
        node.each(g, |g, _| {
            let mut x = ct;
            if self.step > 1 {
                // Zeros behind each element for those that were left out.
                let mut shape = g.ty(x).shape.clone();
                shape.to_mut()[self.dim] *= self.step;
                x = g.unsqueeze(x, self.dim + 1)?;
                x = g.pad(x, self.dim + 1, 0, self.step - 1)?;
                x = g.reshape(x, shape)?;
                let end = g.ty(x).shape[self.dim].min(size - self.start);
                x = g.slice(x, self.dim, 0, end)?;
            }
            let rest = size - self.start - g.ty(x).shape[self.dim];
            g.pad(x, self.dim, self.start, rest)
        })
    }
}

impl Named for Slice {
    const NAME: &'static str = "slice";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for dtype in DType::SCALARS {
            for arrange in ARRANGEMENTS {
                for (start, end, step) in [(1, 6, 2), (0, 7, 1), (6, 7, 1), (3, 3, 1)] {
                    let x = CaseOperand::new([2, 7, 3], dtype).arrange(arrange);
                    let dim = 1;
                    cases.push(Case::new(
                        Self {
                            dim,
                            start,
                            end,
                            step,
                        },
                        [x],
                    ));
                }
            }
        }
        cases
    }
}
