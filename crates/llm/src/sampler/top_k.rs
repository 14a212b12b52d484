//! Top-k.

use super::candidates::Candidates;
use super::definition::Definition;
use super::{Sampler, sampler};

sampler! {
    /// Top-k: the best tokens.
    TopK: "top_k", Some('k');
    /// Top-k: keep the K most likely tokens; 0 disables it
    top_k: i64 = 40, WHOLE, "--top-k K";
}

impl Definition for TopK {
    fn is_on(&self) -> bool {
        self.top_k > 0
    }

    fn sampler(&self, _seed: u32) -> Box<dyn Sampler + Send> {
        Box::new(Best(self.top_k as usize))
    }

    fn keeps_best(&self) -> bool {
        true
    }

    fn looks_at(&self) -> Option<usize> {
        Some(self.top_k as usize)
    }
}

/// Keeps this many of the best candidates, best first; at least 1.
struct Best(usize);

impl Sampler for Best {
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
        check(&mut Best(1), &before, &[1.0]);
        check(&mut Best(3), &before, &[0.44444, 0.33333, 0.22222]);
        check(&mut Best(4), &before, &[0.4, 0.3, 0.2, 0.1]);
        check(&mut Best(9), &before, &[0.4, 0.3, 0.2, 0.1]);
    }
}
