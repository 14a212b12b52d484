//! The remaining candidate tokens.

use std::cmp::Ordering;

/// A token with its score.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) id: u32,
    pub(super) logit: f32,
    /// Set by [`Candidates::softmax`]; stale after logits or candidates have changed.
    pub(super) p: f32,
}

/// The candidates in their current order, which decides the draw. The buffer is reused from token
/// to token.
#[derive(Default)]
pub(super) struct Candidates {
    pub(super) entries: Vec<Candidate>,
    /// Whether the entries are known to go from the best to the worst.
    pub(super) sorted: bool,
}

impl Candidates {
    /// Starts over with every token in the vocabulary's order; a NaN becomes −∞.
    pub(super) fn load(&mut self, logits: &[f32]) {
        self.take((0..).zip(logits.iter().copied()));
        self.sorted = false;
    }

    /// Starts over with the best tokens of the vocabulary, the best first.
    pub(super) fn load_best(&mut self, ids: &[u32], logits: &[f32]) {
        self.take(ids.iter().copied().zip(logits.iter().copied()));
        self.sorted = true;
    }

    fn take(&mut self, tokens: impl Iterator<Item = (u32, f32)>) {
        let clean = |logit: f32| match logit.is_nan() {
            true => f32::NEG_INFINITY,
            // Makes 0 of −0: they are equals.
            false => logit + 0.0,
        };
        self.entries.clear();
        self.entries.extend(tokens.map(|(id, logit)| Candidate {
            id,
            logit: clean(logit),
            p: 0.0,
        }));
    }

    /// Makes a token impossible, while they are in the vocabulary's order.
    pub(super) fn ban(&mut self, token: u32) {
        if let Some(candidate) = self.entries.get_mut(token as usize) {
            candidate.logit = f32::NEG_INFINITY;
        }
    }

    /// The candidate of a token, wherever it is now.
    pub(super) fn of_token(&mut self, token: u32) -> Option<&mut Candidate> {
        let is_it = |candidate: &Candidate| candidate.id == token;
        let in_place = self.entries.get(token as usize).is_some_and(is_it);
        match in_place {
            true => self.entries.get_mut(token as usize),
            false => self.entries.iter_mut().find(|candidate| is_it(candidate)),
        }
    }

    /// Puts the `n` best (at least one) first, from the best down; the order of the others is lost.
    pub(super) fn sort_head(&mut self, n: usize) {
        if self.sorted {
            return;
        }
        if n < self.entries.len() {
            self.entries.select_nth_unstable_by(n - 1, better_first);
            self.entries[..n].sort_unstable_by(better_first);
        } else {
            self.entries.sort_unstable_by(better_first);
            self.sorted = true;
        }
    }

    /// Keeps the first `n` entries, which [`sort_head`](Self::sort_head) has sorted.
    pub(super) fn truncate_sorted(&mut self, n: usize) {
        self.entries.truncate(n);
        self.sorted = true;
    }

    /// Index of the largest logit, the first one of equals.
    pub(super) fn best(&self) -> usize {
        if self.sorted {
            return 0;
        }
        let mut best = 0;
        for (i, candidate) in self.entries.iter().enumerate() {
            if candidate.logit > self.entries[best].logit {
                best = i;
            }
        }
        best
    }

    /// Sets `p` to `exp(logit − max)` and returns the sum, added up in the current order.
    pub(super) fn exponentiate<Sum: From<f32> + std::ops::AddAssign>(&mut self) -> Sum {
        let max = self.entries[self.best()].logit;
        let mut sum = Sum::from(0.0);
        for candidate in &mut self.entries {
            // The difference of equal infinities would be NaN.
            candidate.p = if candidate.logit == max {
                1.0
            } else {
                (candidate.logit - max).exp()
            };
            sum += Sum::from(candidate.p);
        }
        sum
    }

    /// Sets `p` to the probabilities, summed in f32 as llama.cpp's filters do.
    pub(super) fn softmax(&mut self) {
        let sum: f32 = self.exponentiate();
        for candidate in &mut self.entries {
            candidate.p /= sum;
        }
    }

    /// Leaves the candidate at `index` alone.
    pub(super) fn keep_only(&mut self, index: usize) {
        self.entries.swap(0, index);
        self.truncate_sorted(1);
    }
}

/// Descending logits; of equals the lower token id first.
fn better_first(a: &Candidate, b: &Candidate) -> Ordering {
    b.logit.total_cmp(&a.logit).then(a.id.cmp(&b.id))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::Sampler;
    use super::*;

    /// Candidates with the given probabilities, token ids from 0.
    pub(in super::super) fn from_probabilities(probabilities: &[f32]) -> Candidates {
        let logits: Vec<f32> = probabilities.iter().map(|p| p.ln()).collect();
        let mut candidates = Candidates::default();
        candidates.load(&logits);
        candidates
    }

    /// Checks the probabilities, in their order, that `sampler` turns `before` into. The tables
    /// are those of llama.cpp's `tests/test-sampling.cpp`, and so is the tolerance.
    pub(in super::super) fn check(sampler: &mut dyn Sampler, before: &[f32], after: &[f32]) {
        let mut candidates = from_probabilities(before);
        sampler.apply(&mut candidates);
        candidates.softmax();
        let found: Vec<f32> = candidates
            .entries
            .iter()
            .map(|candidate| candidate.p)
            .collect();
        assert_eq!(
            found.len(),
            after.len(),
            "{found:?} where {after:?} is expected"
        );
        for (f, a) in found.iter().zip(after) {
            assert!(
                (f - a).abs() < 1e-5,
                "{found:?} where {after:?} is expected"
            );
        }
    }

    fn ids(candidates: &Candidates) -> Vec<u32> {
        candidates
            .entries
            .iter()
            .map(|candidate| candidate.id)
            .collect()
    }

    #[test]
    fn the_head_is_sorted_with_equals_by_id() {
        let mut candidates = Candidates::default();
        candidates.load(&[1.0, 3.0, f32::NAN, 3.0, 2.0, 3.0]);
        candidates.sort_head(4);
        assert_eq!(ids(&candidates)[..4], [1, 3, 5, 4]);
        assert!(!candidates.sorted);
        candidates.sort_head(6);
        assert_eq!(ids(&candidates), [1, 3, 5, 4, 0, 2]);
        assert!(candidates.sorted);
    }

    #[test]
    fn loading_again_forgets_what_was_done() {
        let mut candidates = from_probabilities(&[0.5, 0.25, 0.25]);
        candidates.sort_head(3);
        candidates.keep_only(2);
        assert_eq!(ids(&candidates), [2]);
        candidates.load(&[0.0, 1.0]);
        assert_eq!(ids(&candidates), [0, 1]);
        assert_eq!(candidates.best(), 1);
    }

    #[test]
    fn infinite_logits_share_the_probability() {
        let mut candidates = Candidates::default();
        candidates.load(&[0.0, f32::INFINITY, f32::NEG_INFINITY, f32::INFINITY]);
        candidates.softmax();
        let p: Vec<f32> = candidates
            .entries
            .iter()
            .map(|candidate| candidate.p)
            .collect();
        assert_eq!(p, [0.0, 0.5, 0.0, 0.5]);
    }
}
