//! Top-k.

use super::Sampler;
use super::candidates::Candidates;

/// Keeps the `k` best candidates, best first; `k` is at least 1.
pub(super) struct TopK(pub(super) usize);

impl Sampler for TopK {
    fn apply(&mut self, candidates: &mut Candidates) {
        candidates.sort_head(self.0);
        candidates.truncate_sorted(self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::candidates::tests::check;
    use super::*;

    #[test]
    fn probabilities_are_those_of_llama_cpp() {
        let before = [0.1, 0.2, 0.3, 0.4];
        check(&mut TopK(1), &before, &[1.0]);
        check(&mut TopK(3), &before, &[0.44444, 0.33333, 0.22222]);
        check(&mut TopK(4), &before, &[0.4, 0.3, 0.2, 0.1]);
        check(&mut TopK(9), &before, &[0.4, 0.3, 0.2, 0.1]);
    }
}
