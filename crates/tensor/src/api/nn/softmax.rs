//! Softmax and its logarithm.

use rustorch_ir::ops::Softmax;
use rustorch_macros::track_calls;

use crate::Tensor;
use crate::args::dims::Integer;
use crate::error::RusTorchResult;

#[track_calls]
impl Tensor {
    /// `exp(x) / Σ exp(x)` along `dim`, computed without overflow. Takes floats.
    ///
    /// # Errors
    /// Fails for an unsupported dtype, or if the dimension does not exist.
    pub fn softmax(&self, dim: impl Integer) -> RusTorchResult<Self> {
        const NAME: &str = "softmax";
        self.softened(NAME, dim.to_isize(), |x, dim| {
            Self::apply(NAME, Softmax { dim, log: false }, &[x])
        })
    }

    /// `exp(-x) / Σ exp(-x)` along `dim`, computed without overflow. Takes floats.
    ///
    /// # Errors
    /// Fails for an unsupported dtype, or if the dimension does not exist.
    pub fn softmin(&self, dim: impl Integer) -> RusTorchResult<Self> {
        const NAME: &str = "softmin";
        let minus = self.neg()?;
        minus.softened(NAME, dim.to_isize(), |x, dim| {
            Self::apply(NAME, Softmax { dim, log: false }, &[x])
        })
    }

    /// `log(softmax(x))` along `dim`, computed without overflow or loss of precision. Takes floats.
    ///
    /// # Errors
    /// Fails for an unsupported dtype, or if the dimension does not exist.
    pub fn log_softmax(&self, dim: impl Integer) -> RusTorchResult<Self> {
        const NAME: &str = "log_softmax";
        self.softened(NAME, dim.to_isize(), |x, dim| {
            Self::apply(NAME, Softmax { dim, log: true }, &[x])
        })
    }

    /// A function along a dimension of floats: nothing is to be done where there are none, and a
    /// tensor of rank 0 has one.
    fn softened(
        &self,
        name: &'static str,
        dim: isize,
        function: impl Fn(&Self, usize) -> RusTorchResult<Self>,
    ) -> RusTorchResult<Self> {
        self.require_float(name)?;
        let dim = rustorch_ir::normalize_dim(name, dim, self.rank().max(1))?;
        match (self.numel(), self.rank()) {
            (0, _) => Ok(self.clone()),
            (_, 0) => function(&self.reshape([1])?, dim)?.reshape([0usize; 0]),
            _ => function(self, dim),
        }
    }
}
