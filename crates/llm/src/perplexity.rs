//! Perplexity by llama.cpp's method, so that figures can be compared.

use crate::LlmError;
use crate::session::Session;

/// The perplexity so far, after a chunk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Perplexity {
    /// Chunks that were scored.
    pub chunks: usize,
    /// exp of the mean negative log-likelihood.
    pub value: f64,
    /// Standard error of the value.
    pub error: f64,
}

/// Scores `tokens` in non-overlapping chunks of the session's context. In each chunk, `bos`
/// replaces the first token if the model has one, and the second half is scored. `each` is called
/// after every chunk. At most `limit` chunks, if one is given.
///
/// # Errors
/// Fails if the text is shorter than two contexts, or if a computation fails.
pub fn perplexity(
    session: &mut Session,
    tokens: &[u32],
    bos: Option<u32>,
    limit: Option<usize>,
    mut each: impl FnMut(Perplexity),
) -> Result<Perplexity, LlmError> {
    let size = session.context();
    if size < 3 {
        return Err(LlmError::Input(format!(
            "a context of {size} has no token to score in its second half: perplexity needs one of 3 or more"
        )));
    }
    if tokens.len() < 2 * size {
        return Err(LlmError::Input(format!(
            "the text has {} tokens; perplexity at a context of {size} needs at least {}: \
             use a longer text or a smaller context",
            tokens.len(),
            2 * size
        )));
    }
    let first = size / 2;
    let chunks = (tokens.len() / size).min(limit.unwrap_or(usize::MAX));
    let mut sum = Sum::default();
    let mut result = sum.perplexity(0);
    for (i, chunk) in tokens.chunks_exact(size).take(chunks).enumerate() {
        let mut chunk = chunk.to_vec();
        if let Some(bos) = bos {
            chunk[0] = bos;
        }
        session.truncate(0);
        session.feed_all(&chunk, |positions, logits| {
            let vocab = logits.len() / positions.len().max(1);
            for (position, logits) in positions.zip(logits.chunks_exact(vocab)) {
                if (first..size - 1).contains(&position) {
                    sum.add(-log_probability(logits, chunk[position + 1] as usize));
                }
            }
            Ok::<_, LlmError>(())
        })?;
        result = sum.perplexity(i + 1);
        each(result);
    }
    Ok(result)
}

/// Log of the probability that a softmax gives to `token`.
fn log_probability(logits: &[f32], token: usize) -> f64 {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|&x| f64::from((x - max).exp())).sum();
    f64::from(logits[token] - max) - sum.ln()
}

#[derive(Default)]
struct Sum {
    count: usize,
    values: f64,
    squares: f64,
}

impl Sum {
    fn add(&mut self, value: f64) {
        self.count += 1;
        self.values += value;
        self.squares += value * value;
    }

    fn perplexity(&self, chunks: usize) -> Perplexity {
        let n = self.count.max(1) as f64;
        let mean = self.values / n;
        let variance = self.squares / n - mean * mean;
        let error = (variance / (n - 1.0).max(1.0)).max(0.0).sqrt();
        Perplexity {
            chunks,
            value: mean.exp(),
            error: error * mean.exp(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_odds() {
        let p = log_probability(&[1000.0, 1000.0, 1000.0, 1000.0], 2);
        assert!((p - 0.25f64.ln()).abs() < 1e-12);
    }

    #[test]
    fn error_is_that_of_the_mean() {
        let mut sum = Sum::default();
        for x in [1.0, 3.0] {
            sum.add(x);
        }
        let p = sum.perplexity(1);
        assert!((p.value - 2f64.exp()).abs() < 1e-12);
        assert!((p.error - 2f64.exp()).abs() < 1e-12);
    }
}
