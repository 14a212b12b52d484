use smallvec::smallvec;

use crate::case::{ARRANGEMENTS, Case, CaseOperand};
use crate::ops::*;
use crate::{Graph, Named, OpDef, OpType, Param, ResultTypes, Results, ValueId};

/// `(x - mean) / √(var + eps)` of each group of channels, then `· weight + bias` of each channel.
///
/// Operands: `x` `[n, c, …]`, floating point; optionally `weight`, then `bias`, `[c]`, of `x`'s
/// dtype. The variance is the biased one.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct GroupNorm {
    /// The number of groups, which divides the channels.
    pub groups: usize,
    /// Added to the variance.
    pub eps: Param,
}

impl OpDef for GroupNorm {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::Normalization)
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let counts = matches!(inputs.len(), 1..=3);
        require(Self::NAME, counts, "1 to 3 operands", inputs.len())?;
        let x = inputs[0];
        require_float(Self::NAME, x)?;
        require(Self::NAME, x.rank() >= 2, "x [n, c, ..]", x)?;
        let c = x.shape[1];
        let divides = self.groups > 0 && c.is_multiple_of(self.groups);
        let expected = format_args!("groups that divide {c} channels");
        require(Self::NAME, divides, expected, self.groups)?;
        for affine in &inputs[1..] {
            require_same(Self::NAME, x, affine)?;
            let expected = format_args!("one value for each of {c} channels");
            require(Self::NAME, *affine.shape == [c], expected, affine)?;
        }
        Ok(smallvec![x.clone()])
    }

    fn is_composite(&self) -> bool {
        true
    }

    fn decompose(&self, g: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError> {
        let out = g.ty(inputs[0]).clone();
        let compute = compute_dtype(out.dtype);
        let (n, c) = (out.shape[0], out.shape[1]);
        let pixels: usize = out.shape[2..].iter().product();
        let x = g.cast(inputs[0], compute)?;
        let lines = [n * self.groups, c / self.groups * pixels];
        let lines = g.reshape(x, lines)?;
        let eps = self.eps;
        let y = LayerNorm { dims: 1, eps }.decompose(g, &[lines])?[0];
        let mut y = g.reshape(y, [n, c, pixels])?;
        let along = |g: &mut Graph, v: ValueId| {
            let v = g.cast(v, compute)?;
            g.reshape(v, [c, 1])
        };
        if let Some(&weight) = inputs.get(1) {
            let weight = along(g, weight)?;
            y = g.mul(y, weight)?;
        }
        if let Some(&bias) = inputs.get(2) {
            let bias = along(g, bias)?;
            y = g.add(y, bias)?;
        }
        let y = g.reshape(y, out.shape)?;
        Ok(smallvec![g.cast(y, out.dtype)?])
    }
}

impl Named for GroupNorm {
    const NAME: &'static str = "group_norm";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        let eps = Param(1e-5);
        for dtype in DType::FLOATS {
            let c = |n: usize| CaseOperand::new([n], dtype);
            for groups in [1, 2, 6] {
                for arrange in ARRANGEMENTS {
                    let x = CaseOperand::new([3, 6, 5, 7], dtype).arrange(arrange);
                    let op = Self { groups, eps };
                    cases.push(Case::new(op.clone(), [x.clone()]));
                    cases.push(Case::new(op.clone(), [x.clone(), c(6)]));
                    cases.push(Case::new(op, [x, c(6), c(6)]));
                }
            }
            for (shape, groups) in [(&[2, 4, 4500][..], 2), (&[5, 8], 2), (&[0, 4, 3], 2)] {
                let x = CaseOperand::new(shape, dtype);
                let op = Self { groups, eps };
                cases.push(Case::new(op, [x, c(shape[1]), c(shape[1])]));
            }
        }
        cases
    }
}
