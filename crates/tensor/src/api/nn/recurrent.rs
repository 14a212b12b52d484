//! Recurrent layers over all time steps at once.

use rustorch_ir::ops::Lstm;
use rustorch_macros::track_calls;

use crate::Tensor;
use crate::autograd::is_grad_enabled;
use crate::error::RusTorchResult;

#[track_calls]
impl Tensor {
    /// Long short-term memory over all time steps of sequences, in one direction. `self`
    /// `[elements, 4 · hidden]` is the projected input with all biases. `weight` is
    /// `[4 · hidden, hidden]`, and the first states `h` and `c` are `[n, hidden]`. All are floats
    /// of one dtype. Sequences are sorted by length, the longest first; `sizes` has the number of
    /// sequences at each time step. With `reverse` the last time step comes first.
    ///
    /// Returns the hidden states `[elements, hidden]`, and the last `h` and `c`.
    ///
    /// # Errors
    /// Fails for unsupported shapes or dtypes, or for batch sizes that grow.
    pub fn lstm(
        &self,
        weight: &Self,
        [h, c]: [&Self; 2],
        sizes: &[usize],
        reverse: bool,
    ) -> RusTorchResult<[Self; 3]> {
        let operands = [self, weight, h, c];
        let is_tracked = operands.into_iter().any(Self::is_tracked);
        let op = Lstm {
            sizes: sizes.to_vec(),
            reverse,
            saves: is_tracked && is_grad_enabled(),
        };
        match op.saves {
            true => {
                let [y, h, c, ..]: [Self; 6] = Self::apply_all("lstm", op, &operands)?;
                Ok([y, h, c])
            }
            false => Self::apply_all("lstm", op, &operands),
        }
    }
}
