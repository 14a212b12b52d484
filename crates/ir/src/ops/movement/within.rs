use smallvec::smallvec;

use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{self, Case, Fill};
use crate::ops::*;
use crate::{Graph, Named, OpDef, OpType, Param, ResultTypes, Results, ValueId};

/// The operand, if all its elements are in a range, like probabilities: an element outside is the
/// caller's mistake, found at run time. Floats.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Within {
    /// The least element that is inside.
    pub low: Param,
    /// The largest element within the range.
    pub high: Param,
    /// Whether NaN is inside.
    pub nan: bool,
}

impl Within {
    /// Name of the range in messages.
    pub fn range(&self) -> String {
        let (low, high) = (self.low.0, self.high.0);
        let nan = if self.nan { ", or NaN" } else { "" };
        match (low == f64::NEG_INFINITY, high == f64::INFINITY) {
            (false, true) => format!("{low} or more{nan}"),
            (true, false) => format!("at most {high}{nan}"),
            _ => format!("from {low} to {high}{nan}"),
        }
    }

    /// Returns whether `x` is in the range.
    #[inline(always)]
    pub fn holds(&self, x: f64) -> bool {
        (x >= self.low.0 && x <= self.high.0) || (self.nan && x.is_nan())
    }
}

impl OpDef for Within {
    fn op_type(&self) -> Option<OpType> {
        None
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [x] = operands(Self::NAME, inputs)?;
        require_float(Self::NAME, x)?;
        Ok(smallvec![x.clone()])
    }

    fn is_composite(&self) -> bool {
        true
    }

    /// Elements outside are taken from a place that is outside.
    fn decompose(&self, g: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError> {
        let TensorType { shape, dtype } = g.ty(inputs[0]).clone();
        let count = shape.elements();
        let x = g.reshape(inputs[0], [count])?;
        let bound = |g: &mut Graph, bound: Param| g.constant(bound.0, dtype);
        let (low, high) = (bound(g, self.low)?, bound(g, self.high)?);
        let mut inside = g.compare(CompareOp::Ge, x, low)?;
        let below = g.compare(CompareOp::Le, x, high)?;
        inside = g.binary(BinaryOp::And, inside, below)?;
        if self.nan {
            let is_nan = g.compare(CompareOp::Ne, x, x)?;
            inside = g.binary(BinaryOp::Or, inside, is_nan)?;
        }
        let (own, nowhere) = (g.arange(count, DType::I64)?, g.constant(-1, DType::I64)?);
        let places = g.select(inside, own, nowhere)?;
        let taken = g.push(IndexSelect { dim: 0 }, &[x, places])?;
        Ok(smallvec![g.reshape(taken, shape)?])
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        let ct = node.cotangent(g, 0)?;
        node.each(g, |_, _| Ok(ct))
    }
}

impl Named for Within {
    const NAME: &'static str = "within";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for (low, high, nan) in [
            (0.0, 1.0, false),
            (0.0, f64::INFINITY, true),
            (-0.5, 3.0, true),
        ] {
            let (low, high) = (Param(low), Param(high));
            let op = Self { low, high, nan };
            let inside = |x: crate::case::CaseOperand| x.fill(Fill::Uniform(0.0, 1.0));
            cases.extend(case::elementwise(&op.into(), &DType::FLOATS, inside));
        }
        cases
    }
}
