//! The draw.

use super::Sampler;
use super::candidates::Candidates;
use super::mt19937::Mt19937;

/// Leaves one candidate, drawn by its probability: the first token at which the running sum reaches a uniform share
/// of the whole. The order is the current one, as in llama.cpp's `llama_sampler_dist_apply`.
pub(super) struct Dist {
    rng: Mt19937,
}

impl Dist {
    pub(super) fn new(seed: u32) -> Self {
        Self {
            rng: Mt19937::new(seed),
        }
    }
}

impl Sampler for Dist {
    fn apply(&mut self, candidates: &mut Candidates) {
        let sum: f64 = candidates.exponentiate();
        // A single candidate takes its number too: every token advances the generator alike.
        let target = sum * self.rng.uniform();
        let mut running = 0.0f64;
        let drawn = candidates.entries.iter().position(|candidate| {
            running += f64::from(candidate.p);
            running >= target
        });
        candidates.keep_only(drawn.unwrap_or(candidates.entries.len() - 1));
    }
}

/// The index of a candidate, drawn by its probability as `std::discrete_distribution` of libstdc++
/// draws.
pub(super) fn draw(rng: &mut Mt19937, candidates: &Candidates) -> usize {
    let last = candidates.entries.len() - 1;
    if last == 0 {
        return 0;
    }
    let probabilities = || candidates.entries.iter().map(|entry| f64::from(entry.p));
    let sum = probabilities().fold(0.0, |sum, p| sum + p);
    let target = rng.uniform();
    let mut running = 0.0;
    let drawn = probabilities().position(|p| {
        running += p / sum;
        running >= target
    });
    drawn.unwrap_or(last)
}

#[cfg(test)]
mod tests {
    use super::super::candidates::tests::from_probabilities;
    use super::*;

    fn draw(dist: &mut Dist, probabilities: &[f32]) -> u32 {
        let mut candidates = from_probabilities(probabilities);
        dist.apply(&mut candidates);
        assert_eq!(candidates.entries.len(), 1);
        candidates.entries[0].id
    }

    /// `std::discrete_distribution{0.1, 0.2, 0.3, 0.4}` of libstdc++ 12 on `std::mt19937(1234)`.
    #[test]
    fn draws_are_those_of_a_discrete_distribution() {
        let mut dist = Dist::new(1234);
        let drawn: Vec<u32> = (0..32)
            .map(|_| draw(&mut dist, &[0.1, 0.2, 0.3, 0.4]))
            .collect();
        let expected = [
            2, 3, 3, 3, 3, 1, 1, 3, 1, 1, 0, 2, 2, 3, 0, 0, 2, 0, 1, 1, 3, 3, 3, 1, 2, 2, 2, 3, 2,
            2, 2, 3,
        ];
        assert_eq!(drawn, expected);
    }

    #[test]
    fn a_single_candidate_advances_the_generator() {
        let (mut single, mut control) = (Dist::new(4242), Dist::new(4242));
        assert_eq!(draw(&mut single, &[1.0]), 0);
        draw(&mut control, &[0.5, 0.5]);
        let even = [1.0 / 256.0; 256];
        for _ in 0..4 {
            assert_eq!(draw(&mut single, &even), draw(&mut control, &even));
        }
    }
}
