use smallvec::smallvec;

use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{ARRANGEMENTS, Case, CaseOperand};
use crate::ops::*;
use crate::{Graph, Named, OpDef, OpType, Param, ResultTypes, Results, ValueId};

/// `x / √(mean(x²) + eps) · weight` over the last dimension
/// ([Zhang and Sennrich](https://arxiv.org/abs/1910.07467)).
///
/// Operands: `x` `[…, d]`, floating point; optionally `weight` `[d]` of `x`'s dtype.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RmsNorm {
    /// Added to the mean square.
    pub eps: Param,
}

impl OpDef for RmsNorm {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::Normalization)
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        require(
            Self::NAME,
            matches!(inputs.len(), 1 | 2),
            "1 or 2 operands",
            inputs.len(),
        )?;
        let x = inputs[0];
        require_float(Self::NAME, x)?;
        require(Self::NAME, x.rank() > 0, "x [.., d]", x)?;
        if let Some(weight) = inputs.get(1) {
            require_same(Self::NAME, x, weight)?;
            let d = x.shape[x.rank() - 1];
            require(
                Self::NAME,
                *weight.shape == [d],
                format!("a weight [{d}]"),
                weight,
            )?;
        }
        Ok(smallvec![x.clone()])
    }

    fn is_composite(&self) -> bool {
        true
    }

    fn decompose(&self, g: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError> {
        let out = g.ty(inputs[0]).clone();
        let compute = compute_dtype(out.dtype);
        let x = g.cast(inputs[0], compute)?;
        let square = g.mul(x, x)?;
        let mean = g.mean(square, out.rank() - 1)?;
        let mean = g.add_scalar(mean, self.eps.0)?;
        let inverse = g.unary(UnaryOp::Rsqrt, mean)?;
        let mut y = g.mul(x, inverse)?;
        if let Some(&weight) = inputs.get(1) {
            let weight = g.cast(weight, compute)?;
            y = g.mul(y, weight)?;
        }
        Ok(smallvec![g.cast(y, out.dtype)?])
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        let backward = NormBackward {
            dims: 1,
            eps: self.eps,
            is_centred: false,
            has_weight: node.inputs.len() > 1,
            adds: false,
            also: None,
        };
        backward.of(g, node)
    }
}

impl Named for RmsNorm {
    const NAME: &'static str = "rms_norm";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for dtype in DType::FLOATS {
            for arrange in ARRANGEMENTS {
                let op = Self { eps: 1e-5.into() };
                let x = CaseOperand::new([3, 4, 37], dtype).arrange(arrange);
                cases.push(Case::new(op.clone(), [x.clone()]));
                cases.push(Case::new(op, [x, CaseOperand::new([37], dtype)]));
            }
            let op = Self { eps: 1e-6.into() };
            let long = [
                CaseOperand::new([2, 9000], dtype),
                CaseOperand::new([9000], dtype),
            ];
            cases.push(Case::new(op.clone(), long));
            cases.push(Case::new(op.clone(), [CaseOperand::new([0, 8], dtype)]));
            cases.push(Case::new(op, [CaseOperand::new([1], dtype)]));
        }
        cases
    }
}
