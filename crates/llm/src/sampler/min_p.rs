//! Min-p (Nguyen et al., <https://arxiv.org/abs/2407.01082>).

use super::candidates::Candidates;
use super::definition::Definition;
use super::{Sampler, sampler};

sampler! {
    /// Min-p: tokens at least as likely as a fraction of the best one.
    MinP: "min_p", Some('m');
    /// Min-p: drop tokens below P times the probability of the most likely token; 0 disables it
    min_p: f32 = 0.05, SHARE, "--min-p P";
}

impl Definition for MinP {
    fn is_on(&self) -> bool {
        self.min_p > 0.0
    }

    fn sampler(&self, _seed: u32) -> Box<dyn Sampler + Send> {
        Box::new(self.clone())
    }

    fn keeps_best(&self) -> bool {
        true
    }
}

impl Sampler for MinP {
    /// Keeps candidates at least `min_p` times as likely as the best one, in their order.
    fn apply(&mut self, candidates: &mut Candidates) {
        // Above 1 not even the best would be left.
        let threshold = candidates.entries[candidates.best()].logit + self.min_p.min(1.0).ln();
        candidates
            .entries
            .retain(|candidate| candidate.logit >= threshold);
    }
}

#[cfg(test)]
mod tests {
    use super::super::candidates::tests::check;
    use super::*;

    #[test]
    fn probabilities_are_those_of_llama_cpp() {
        let before = [0.1, 0.2, 0.3, 0.4];
        let three = [0.2 / 0.9, 0.3 / 0.9, 0.4 / 0.9];
        let two = [0.3 / 0.7, 0.4 / 0.7];
        let cases: [(f32, &[f32]); 8] = [
            (0.24, &before),
            (0.26, &three),
            (0.49, &three),
            (0.51, &two),
            (0.74, &two),
            (0.76, &[1.0]),
            (1.00, &[1.0]),
            (1.05, &[1.0]),
        ];
        for (p, after) in cases {
            check(&mut MinP { min_p: p }, &before, after);
        }
    }
}
