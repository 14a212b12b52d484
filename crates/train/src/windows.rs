//! Samples of a corpus: one context of tokens, and the tokens that follow them.

use std::ops::Range;
use std::sync::Arc;

use rustorch_data::{Batch, DataError, DataResult, Dataset};
use rustorch_tensor::Tensor;

use crate::corpus::Tokens;

/// Consecutive windows of tokens without overlap: tensors `[context]` of tokens, `i32`, and of the
/// token after each, `i64`.
#[derive(Clone)]
pub struct Windows {
    tokens: Arc<Tokens>,
    context: usize,
    range: Range<u64>,
}

impl Windows {
    /// Windows of all these tokens.
    pub fn new(tokens: Arc<Tokens>, context: usize) -> Self {
        let whole = tokens.len().saturating_sub(1) / context as u64;
        Self {
            tokens,
            context,
            range: 0..whole,
        }
    }

    /// Number of steps of an epoch with batches of this size.
    pub fn steps(&self, batch: usize) -> u64 {
        (self.range.end - self.range.start) / batch.max(1) as u64
    }

    /// Splits off the last twentieth. Returns the other samples and these.
    pub fn split_last(self) -> [Self; 2] {
        let Range { start, end } = self.range;
        let middle = end - (end - start) / 20;
        let part = |range| Self {
            range,
            ..self.clone()
        };
        [part(start..middle), part(middle..end)]
    }
}

impl Dataset for Windows {
    fn len(&self) -> usize {
        (self.range.end - self.range.start) as usize
    }

    fn get(&self, index: usize) -> DataResult<Batch> {
        let batch = self.get_batch(&[index])?;
        Ok(batch
            .iter()
            .map(|tensor| tensor.select(0, 0))
            .collect::<Result<_, _>>()?)
    }

    fn get_batch(&self, indices: &[usize]) -> DataResult<Batch> {
        let (mut inputs, mut targets) = (Vec::new(), Vec::new());
        for &index in indices {
            let begin = (self.range.start + index as u64) * self.context as u64;
            let ids = self.tokens.read(begin, self.context + 1);
            let ids = ids.map_err(|error| DataError::Other(error.to_string()))?;
            inputs.extend(ids[..self.context].iter().map(|&id| id as i32));
            targets.extend(ids[1..].iter().map(|&id| i64::from(id)));
        }
        let shape = [indices.len(), self.context];
        Ok(vec![
            Tensor::from_vec(inputs, shape)?,
            Tensor::from_vec(targets, shape)?,
        ])
    }
}
