//! Recurrent layers over all time steps at once.

use rustorch_ir::ops::{LinearRecurrence, Lstm};
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

    /// Linear recurrence over all time steps. `self` is the first state `S` `[b, h, dv, dk]`. A time step makes it
    /// `S · diag(w) + (S · a) bᵀ + v kᵀ`, and has the result `S · r`. State space models, gated linear attention,
    /// RWKV and delta nets are such recurrences.
    ///
    /// The operands `[w, k, v, r]` are decays, keys, values and reads. `correction` is `[a, b]`; without it the state
    /// is not corrected. Values are `[b, t, h, dv]`. All others broadcast to `[b, t, h, dk]`. With `reads_before` a
    /// result is read from the state before its time step.
    ///
    /// Returns the results `[b, t, h, dv]`, and the last state.
    ///
    /// # Errors
    /// Fails for unsupported shapes or dtypes, or without a time step.
    pub fn linear_recurrence(
        &self,
        [decays, keys, values, reads]: [&Self; 4],
        correction: Option<[&Self; 2]>,
        reads_before: bool,
    ) -> RusTorchResult<[Self; 2]> {
        let depth = self.size(-1)?;
        let mut shape = values.shape().to_vec();
        if let Some(last) = shape.last_mut() {
            *last = depth;
        }
        let expanded = |x: &Self| match x.shape() == shape {
            true => Ok(x.clone()),
            false => x.expand(&shape[..]),
        };
        let (decays, keys, reads) = (expanded(decays)?, expanded(keys)?, expanded(reads)?);
        let op = LinearRecurrence {
            corrects: correction.is_some(),
            reads_before,
        };
        let mut operands = vec![self.clone(), decays, keys, values.clone(), reads];
        for operand in correction.into_iter().flatten() {
            operands.push(expanded(operand)?);
        }
        let operands: Vec<&Self> = operands.iter().collect();
        Self::apply_all("linear_recurrence", op, &operands)
    }
}
