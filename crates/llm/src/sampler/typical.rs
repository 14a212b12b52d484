//! Locally typical sampling (Meister et al., <https://arxiv.org/abs/2202.00666>).

use super::candidates::{Candidate, Candidates};
use super::definition::Definition;
use super::{Sampler, sampler};

sampler! {
    /// Locally typical tokens.
    Typical: "typ_p", Some('y');
    /// Locally typical sampling: keep typical tokens up to the total probability P; 1 disables it
    typical_p: f32 = 1.0, SHARE, "--typical P";
}

impl Definition for Typical {
    fn is_on(&self) -> bool {
        self.typical_p < 1.0
    }

    fn sampler(&self, _seed: u32) -> Box<dyn Sampler + Send> {
        Box::new(TypicalSampler::new(self.typical_p))
    }
}

/// Keeps the candidates whose surprise is closest to the entropy, until their probabilities
/// exceed `p`.
struct TypicalSampler {
    p: f32,
    /// Candidates with the distance of their surprise from the entropy.
    scored: Vec<(f32, Candidate)>,
}

impl TypicalSampler {
    fn new(p: f32) -> Self {
        Self {
            p,
            scored: Vec::new(),
        }
    }
}

impl Sampler for TypicalSampler {
    fn apply(&mut self, candidates: &mut Candidates) {
        candidates.sort_head(candidates.entries.len());
        candidates.softmax();
        // A vanished probability adds nothing; its logarithm would make the sum NaN.
        let possible = candidates
            .entries
            .iter()
            .filter(|candidate| candidate.p > 0.0);
        let entropy: f32 = possible
            .map(|candidate| -candidate.p * candidate.p.ln())
            .sum();

        let score = |candidate: &Candidate| ((-candidate.p.ln() - entropy).abs(), *candidate);
        self.scored.clear();
        self.scored.extend(candidates.entries.iter().map(score));
        // Equals stay in the order of their logits.
        self.scored.sort_unstable_by(|a, b| {
            a.0.total_cmp(&b.0)
                .then(b.1.logit.total_cmp(&a.1.logit))
                .then(a.1.id.cmp(&b.1.id))
        });

        candidates.entries.clear();
        candidates.sorted = false;
        let mut sum = 0.0f32;
        for (_, candidate) in &self.scored {
            candidates.entries.push(*candidate);
            sum += candidate.p;
            if sum > self.p {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::candidates::tests::{check, from_probabilities};
    use super::*;

    #[test]
    fn candidates_are_those_of_llama_cpp() {
        check(
            &mut TypicalSampler::new(0.5),
            &[0.97, 0.01, 0.01, 0.01],
            &[1.0],
        );
        check(
            &mut TypicalSampler::new(0.5),
            &[0.4, 0.2, 0.2, 0.2],
            &[1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0],
        );
    }

    #[test]
    fn the_most_typical_come_first_and_not_the_best() {
        let mut candidates = from_probabilities(&[0.4, 0.2, 0.2, 0.2]);
        TypicalSampler::new(0.9).apply(&mut candidates);
        let ids: Vec<u32> = candidates
            .entries
            .iter()
            .map(|candidate| candidate.id)
            .collect();
        assert_eq!(ids, [1, 2, 3, 0]);
        assert!(!candidates.sorted);
    }

    #[test]
    fn vanished_probabilities_come_last() {
        let mut candidates = from_probabilities(&[0.0, 0.5, 0.0, 0.5]);
        TypicalSampler::new(0.75).apply(&mut candidates);
        let ids: Vec<u32> = candidates
            .entries
            .iter()
            .map(|candidate| candidate.id)
            .collect();
        assert_eq!(ids, [1, 3]);
    }
}
