//! The logits that a pass copies to the host: all of them, or only the candidates for the next
//! token. The pass finds them on its device.

use std::sync::Arc;

use rustorch_runtime::{Fetched, RunError, Runtime, Storage};
use rustorch_tensor::{RusTorchError, RusTorchResult, Tensor};

/// The requested logits for the token after the last.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Selection {
    /// Number of the best tokens, at least one; `None` for all.
    pub best: Option<usize>,
    /// Excluded tokens.
    pub banned: Arc<[u32]>,
}

/// The logits that a [`Selection`] asked for.
#[derive(Clone, Debug, Default)]
pub struct Scores {
    /// Their token ids, the best first, and the lower id first if logits are equal; `None` for all
    /// tokens in order.
    pub ids: Option<Vec<u32>>,
    /// The logits. The score of a single token is not copied: it is 0.
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

    /// The results of `logits` `[rows, vocab]`: ids, `i64`, `[rows]` if it is one alone; else `[rows, best]`
    /// with their logits; or all logits. NaN is −∞, as for the sampler.
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

    /// Returns whether it is a single token.
    pub(crate) fn is_choice(&self) -> bool {
        self.best == Some(1)
    }

    /// Reads the results of [`Self::of`], whose rows are shared out evenly among `scores`.
    pub(crate) fn read(
        &self,
        runtime: &Runtime,
        outputs: &[Storage],
        scores: &mut [Scores],
    ) -> Result<(), RunError> {
        let [first, rest @ ..] = outputs else {
            return Ok(());
        };
        if self.best.is_none() {
            let bytes = first.bytes() / scores.len().max(1);
            for (i, Scores { ids, logits }) in scores.iter_mut().enumerate() {
                *ids = None;
                logits.resize(bytes / size_of::<f32>(), 0.0);
                runtime.read(first, i * bytes, bytemuck::cast_slice_mut(logits))?;
            }
            return Ok(());
        }
        // Both are on their way before either is waited for.
        let best = runtime.fetch(first);
        let theirs = rest.first().map(|storage| runtime.fetch(storage));
        let mut read = vec![0_i64; first.bytes() / size_of::<i64>()];
        best.read(bytemuck::cast_slice_mut(&mut read))?;
        let mut logits = vec![0.0_f32; read.len()];
        if let Some(theirs) = theirs {
            theirs.read(bytemuck::cast_slice_mut(&mut logits))?;
        }
        let share = (read.len() / scores.len().max(1)).max(1);
        let rows = read.chunks_exact(share).zip(logits.chunks_exact(share));
        for (scores, (ids, logits)) in scores.iter_mut().zip(rows) {
            scores.ids = Some(ids.iter().map(|&id| id as u32).collect());
            scores.logits.clear();
            scores.logits.extend_from_slice(logits);
        }
        Ok(())
    }
}

/// Reads the id of a single token.
pub(crate) fn read_choice(id: Fetched, scores: Option<&mut Scores>) -> Result<u32, RusTorchError> {
    let mut read = [0_i64];
    id.read(bytemuck::cast_slice_mut(&mut read))?;
    let id = read[0] as u32;
    if let Some(scores) = scores {
        scores.ids = Some(vec![id]);
        scores.logits.clear();
        scores.logits.push(0.0);
    }
    Ok(id)
}
