//! What of a pass's logits comes to the host: all of them, or only those that the next token is
//! chosen from. Finding these is part of the pass, on the device that computes it.

use std::sync::Arc;

use rustorch_runtime::{Fetched, RunError, Runtime, Storage};
use rustorch_tensor::{RusTorchError, RusTorchResult, Tensor};

/// Which logits of the token after the last are wanted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Selection {
    /// How many of the best, at least one; `None` for all.
    pub best: Option<usize>,
    /// Tokens that are not among the best.
    pub banned: Arc<[u32]>,
}

/// The logits that a [`Selection`] asked for.
#[derive(Clone, Debug, Default)]
pub struct Scores {
    /// Whose they are, the best first and of equals the one with the lower id; `None` if they
    /// are those of all tokens, in order.
    pub ids: Option<Vec<u32>>,
    /// The logits. That of a single token is not told: it is 0.
    pub logits: Vec<f32>,
}

impl Selection {
    /// The best token.
    pub fn best() -> Self {
        Self {
            best: Some(1),
            ..Self::default()
        }
    }

    /// What is handed out of `logits` `[1, vocab]`: ids, `i64`, and unless it is one alone,
    /// their logits; or all logits. As for the sampler, NaN is −∞.
    pub(crate) fn of(&self, logits: &Tensor) -> RusTorchResult<Vec<Tensor>> {
        let Some(count) = self.best else {
            return Ok(vec![logits.clone()]);
        };
        let mut refused = logits.isnan()?;
        if !self.banned.is_empty() {
            let vocab = logits.shape()[1];
            let banned = (0..vocab as u32).map(|id| self.banned.contains(&id));
            let banned = Tensor::from_vec(banned.collect(), [1, vocab])?;
            refused = refused.logical_or(&banned)?;
        }
        let logits = logits.masked_fill(&refused, f64::NEG_INFINITY)?;
        Ok(match count {
            1 => vec![logits.argmax(1, false)?],
            _ => {
                let (best, ids) = logits.topk(count, 1, true)?;
                vec![ids, best]
            }
        })
    }

    /// Is it a single token?
    pub(crate) fn is_choice(&self) -> bool {
        self.best == Some(1)
    }

    /// Reads what [`Self::of`] handed out, of more than one token.
    pub(crate) fn read(
        &self,
        runtime: &Runtime,
        outputs: &[Storage],
        scores: &mut Scores,
    ) -> Result<(), RunError> {
        let Scores { ids, logits } = scores;
        *ids = None;
        match (self.best, outputs) {
            (None, [all]) => {
                logits.resize(all.bytes() / size_of::<f32>(), 0.0);
                runtime.read(all, 0, bytemuck::cast_slice_mut(logits))
            }
            (Some(_), [best, scores]) => {
                // Both are on their way before either is waited for.
                let [arriving, scores] = [best, scores].map(|storage| runtime.fetch(storage));
                let mut read = vec![0_i64; best.bytes() / size_of::<i64>()];
                arriving.read(bytemuck::cast_slice_mut(&mut read))?;
                logits.resize(read.len(), 0.0);
                *ids = Some(read.into_iter().map(|id| id as u32).collect());
                scores.read(bytemuck::cast_slice_mut(logits))
            }
            _ => Ok(()),
        }
    }
}

/// Reads the id of a single token.
pub(crate) fn read_choice(id: Fetched, scores: &mut Scores) -> Result<u32, RusTorchError> {
    let mut read = [0_i64];
    id.read(bytemuck::cast_slice_mut(&mut read))?;
    let id = read[0] as u32;
    scores.ids = Some(vec![id]);
    scores.logits.clear();
    scores.logits.push(0.0);
    Ok(id)
}
