//! Exclude top choices (<https://github.com/oobabooga/text-generation-webui/pull/6335>).

use super::candidates::Candidates;
use super::definition::Definition;
use super::mt19937::Mt19937;
use super::{Sampler, sampler};

sampler! {
    /// XTC: sometimes removes the most likely tokens, except the least likely of them.
    Xtc: "xtc", Some('x');
    /// XTC: probability of removing the most likely tokens at a step; 0 disables it
    xtc_probability: f32 = 0.0, SHARE, "--xtc-probability P";
    /// XTC: minimum probability of a token that may be removed; above 0.5 disables it
    xtc_threshold: f32 = 0.1, SHARE, "--xtc-threshold P";
}

impl Definition for Xtc {
    fn is_on(&self) -> bool {
        self.xtc_probability > 0.0 && self.xtc_threshold <= 0.5
    }

    fn sampler(&self, seed: u32) -> Box<dyn Sampler + Send> {
        let (probability, threshold) = (self.xtc_probability, self.xtc_threshold);
        Box::new(XtcSampler::new(probability, threshold, seed))
    }
}

/// With a probability, removes all likely candidates but the least likely of them.
struct XtcSampler {
    probability: f32,
    /// The probability of a likely candidate.
    threshold: f32,
    rng: Mt19937,
}

impl XtcSampler {
    fn new(probability: f32, threshold: f32, seed: u32) -> Self {
        Self {
            probability,
            threshold,
            rng: Mt19937::new(seed),
        }
    }
}

impl Sampler for XtcSampler {
    fn apply(&mut self, candidates: &mut Candidates) {
        if candidates.entries.len() < 2 || self.rng.uniform_f32() > self.probability {
            return;
        }
        candidates.sort_head(candidates.entries.len());
        candidates.softmax();
        let entries = &mut candidates.entries;
        let likely = entries.iter().position(|entry| entry.p < self.threshold);
        let likely = likely.unwrap_or(entries.len());
        entries.drain(..likely.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::super::candidates::tests::from_probabilities;
    use super::*;

    /// llama.cpp's table has the probabilities before candidates were left out.
    #[test]
    fn candidates_are_those_of_llama_cpp() {
        let before = [0.4, 0.3, 0.2, 0.1];
        for (threshold, left) in [(0.09, 1), (0.19, 2), (0.29, 3), (0.39, 4)] {
            let mut candidates = from_probabilities(&before);
            XtcSampler::new(0.99, threshold, 0).apply(&mut candidates);
            let found: Vec<u32> = candidates.entries.iter().map(|entry| entry.id).collect();
            let expected: Vec<u32> = (4 - left..4).collect();
            assert_eq!(found, expected, "{threshold}");
        }
    }

    #[test]
    fn it_happens_as_often_as_asked() {
        let mut xtc = XtcSampler::new(0.25, 0.1, 7);
        let mut excludes = || {
            let mut candidates = from_probabilities(&[0.5, 0.5]);
            xtc.apply(&mut candidates);
            usize::from(candidates.entries.len() == 1)
        };
        let often: usize = (0..4000).map(|_| excludes()).sum();
        assert!((900..1100).contains(&often), "{often}");
    }
}
