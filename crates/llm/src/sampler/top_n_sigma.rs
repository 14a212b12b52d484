//! Top-nσ (Tang et al., <https://arxiv.org/abs/2411.07641>).

use super::Sampler;
use super::candidates::Candidates;

/// Makes candidates impossible whose logits are more than this many standard deviations below the
/// best; it is above 0.
pub(super) struct TopNSigma(pub(super) f32);

impl Sampler for TopNSigma {
    fn apply(&mut self, candidates: &mut Candidates) {
        if candidates.entries.len() < 2 {
            return;
        }
        let max = candidates.entries[candidates.best()].logit;
        let possible = || {
            let logits = candidates.entries.iter().map(|candidate| candidate.logit);
            logits.filter(|&logit| logit != f32::NEG_INFINITY)
        };
        let count = possible().count() as f32;
        let mean = possible().fold(0.0_f32, |sum, logit| sum + logit) / count;
        // Each square is of 64 bits, and the sum of 32 again.
        let add = |sum: f32, logit| (f64::from(sum) + f64::from(logit - mean).powi(2)) as f32;
        let deviation = (possible().fold(0.0, add) / count).sqrt();
        let least = max - self.0 * deviation;
        for candidate in &mut candidates.entries {
            if candidate.logit < least {
                candidate.logit = f32::NEG_INFINITY;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::candidates::tests::check;
    use super::*;

    #[test]
    fn probabilities_are_those_of_llama_cpp() {
        let before = [0.1, 0.2, 0.3, 0.4];
        check(
            &mut TopNSigma(1.0),
            &before,
            &[0.0, 0.0, 0.428_571, 0.571_429],
        );
        check(&mut TopNSigma(3.0), &before, &before);
    }
}
