//! Numbers with a valid range, checked at evaluation.

use rustorch_ir::Param;
use rustorch_ir::ops::Within;

use crate::Tensor;
use crate::error::RusTorchResult;

impl Tensor {
    /// The tensor, whose elements have to be from `low` to `high`, or, with `nan`, NaN. Otherwise
    /// tensors that depend on it fail to evaluate.
    pub(crate) fn within(
        &self,
        name: &'static str,
        low: f64,
        high: f64,
        nan: bool,
    ) -> RusTorchResult<Self> {
        let (low, high) = (Param(low), Param(high));
        Self::apply(name, Within { low, high, nan }, &[self])
    }

    /// [`Tensor::within`] of probabilities.
    pub(crate) fn probabilities(&self, name: &'static str) -> RusTorchResult<Self> {
        self.within(name, 0.0, 1.0, false)
    }
}
