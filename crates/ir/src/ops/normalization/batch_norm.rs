use smallvec::smallvec;

use crate::case::{ARRANGEMENTS, Case, CaseOperand, Fill};
use crate::ops::*;
use crate::{Graph, Named, OpDef, OpType, Param, ResultTypes, Results, ValueId};

/// `(x - mean) / √(var + eps) · weight + bias` for each channel, with given statistics.
///
/// Operands: `x` `[n, c, …]`, floating point; `mean` and `var` `[c]`; optionally `weight`,
/// then `bias`, `[c]`; all of one dtype.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct BatchNorm {
    /// Added to the variance.
    pub eps: Param,
}

impl OpDef for BatchNorm {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::Normalization)
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        require(
            Self::NAME,
            matches!(inputs.len(), 3..=5),
            "3 to 5 operands",
            inputs.len(),
        )?;
        let x = inputs[0];
        require_float(Self::NAME, x)?;
        require(Self::NAME, x.rank() >= 2, "x [n, c, ..]", x)?;
        let c = x.shape[1];
        for per_channel in &inputs[1..] {
            require_same(Self::NAME, x, per_channel)?;
            let fits = *per_channel.shape == [c];
            require(
                Self::NAME,
                fits,
                format!("one value for each of {c} channels"),
                per_channel,
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
        let channels: Vec<usize> = (out.shape[1..].iter().enumerate())
            .map(|(i, &c)| if i == 0 { c } else { 1 })
            .collect();
        let along = |g: &mut Graph, v: ValueId| {
            let v = g.cast(v, compute)?;
            g.reshape(v, channels.clone())
        };
        let x = g.cast(inputs[0], compute)?;
        let (mean, variance) = (along(g, inputs[1])?, along(g, inputs[2])?);
        let centred = g.sub(x, mean)?;
        let variance = g.add_scalar(variance, self.eps.0)?;
        let inverse = g.unary(UnaryOp::Rsqrt, variance)?;
        let mut y = g.mul(centred, inverse)?;
        if let Some(&weight) = inputs.get(3) {
            let weight = along(g, weight)?;
            y = g.mul(y, weight)?;
        }
        if let Some(&bias) = inputs.get(4) {
            let bias = along(g, bias)?;
            y = g.add(y, bias)?;
        }
        Ok(smallvec![g.cast(y, out.dtype)?])
    }
}

impl Named for BatchNorm {
    const NAME: &'static str = "batch_norm";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for dtype in DType::FLOATS {
            let c = || CaseOperand::new([4], dtype);
            let var = || c().fill(Fill::Uniform(0.1, 2.0));
            let op = Self { eps: 1e-5.into() };
            for arrange in ARRANGEMENTS {
                let x = CaseOperand::new([3, 4, 5, 7], dtype).arrange(arrange);
                cases.push(Case::new(op.clone(), [x.clone(), c(), var()]));
                cases.push(Case::new(op.clone(), [x, c(), var(), c(), c()]));
            }
            // Pixels in whole vectors.
            let x = CaseOperand::new([3, 4, 4, 8], dtype);
            cases.push(Case::new(op.clone(), [x.clone(), c(), var()]));
            cases.push(Case::new(op.clone(), [x, c(), var(), c(), c()]));
            let x = CaseOperand::new([6, 4], dtype);
            cases.push(Case::new(op.clone(), [x, c(), var(), c()]));
            cases.push(Case::new(
                op,
                [CaseOperand::new([0, 4, 2], dtype), c(), var()],
            ));
        }
        cases
    }
}
