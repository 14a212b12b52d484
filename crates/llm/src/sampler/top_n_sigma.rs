//! Top-nσ (Tang et al., <https://arxiv.org/abs/2411.07641>).

use super::candidates::Candidates;
use super::definition::Definition;
use super::{Sampler, sampler};

sampler! {
    /// Top-n-sigma: tokens whose logits are near the best, measured by their deviation.
    TopNSigma: "top_n_sigma", Some('s');
    /// Top-n-sigma: drop tokens more than N standard deviations below the best logit; 0 or less disables it
    top_n_sigma: f32 = -1.0, FINITE, "--top-nsigma N";
}

impl Definition for TopNSigma {
    fn is_on(&self) -> bool {
        self.top_n_sigma > 0.0
    }

    fn sampler(&self, _seed: u32) -> Box<dyn Sampler + Send> {
        Box::new(self.clone())
    }

    fn keeps_best(&self) -> bool {
        true
    }
}

impl Sampler for TopNSigma {
    /// Makes candidates impossible whose logits are too far below the best.
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
        let least = max - self.top_n_sigma * deviation;
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
            &mut TopNSigma { top_n_sigma: 1.0 },
            &before,
            &[0.0, 0.0, 0.428_571, 0.571_429],
        );
        check(&mut TopNSigma { top_n_sigma: 3.0 }, &before, &before);
    }
}
