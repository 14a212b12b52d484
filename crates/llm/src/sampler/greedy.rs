//! The best candidate.

use super::Sampler;
use super::candidates::Candidates;

/// Leaves the candidate of the largest logit, the first one of equals.
pub(super) struct Greedy;

impl Sampler for Greedy {
    fn apply(&mut self, candidates: &mut Candidates) {
        candidates.keep_only(candidates.best());
    }
}

#[cfg(test)]
mod tests {
    use super::super::candidates::tests::from_probabilities;
    use super::*;

    #[test]
    fn the_best_is_left() {
        let mut candidates = from_probabilities(&[0.1, 0.4, 0.1, 0.4]);
        Greedy.apply(&mut candidates);
        assert_eq!(candidates.entries.len(), 1);
        assert_eq!(candidates.entries[0].id, 1);
    }
}
