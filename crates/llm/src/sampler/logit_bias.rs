//! Logits that are raised or lowered.

use super::Sampler;
use super::candidates::Candidates;

/// Adds to the logits of tokens; −∞ makes one impossible.
pub(super) struct LogitBias(pub(super) Vec<(u32, f32)>);

impl Sampler for LogitBias {
    fn apply(&mut self, candidates: &mut Candidates) {
        for &(token, bias) in &self.0 {
            if let Some(candidate) = candidates.of_token(token) {
                candidate.logit += bias;
            }
        }
        candidates.sorted = false;
    }
}

#[cfg(test)]
mod tests {
    use super::super::candidates::tests::check;
    use super::*;

    #[test]
    fn logits_are_raised_and_lowered() {
        let bias = vec![(0, 2.0_f32.ln()), (2, f32::NEG_INFINITY), (9, 1.0)];
        check(&mut LogitBias(bias), &[0.25; 4], &[0.5, 0.25, 0.0, 0.25]);
    }
}
