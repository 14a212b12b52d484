//! Temperature, and temperature that depends on the entropy
//! (<https://arxiv.org/abs/2403.14541> has the idea; the formula is llama.cpp's).

use super::candidates::Candidates;
use super::definition::Definition;
use super::{Sampler, sampler};

sampler! {
    /// Division of the logits by a temperature, which may depend on the entropy.
    Temperature: "temperature", Some('t');
    /// Temperature: higher is more random; 0 always picks the most likely token
    temperature: f32 = 0.8, FINITE, "--temp T";
    /// Dynamic temperature: range around --temp, chosen by the entropy; 0 disables it
    dynatemp_range: f32 = 0.0, FINITE, "--dynatemp-range T";
    /// Dynamic temperature: exponent from entropy to temperature
    dynatemp_exponent: f32 = 1.0, FINITE, "--dynatemp-exp X";
}

impl Temperature {
    fn is_greedy(&self) -> bool {
        self.temperature <= 0.0 && self.dynatemp_range <= 0.0
    }
}

impl Definition for Temperature {
    fn is_on(&self) -> bool {
        true
    }

    fn sampler(&self, _seed: u32) -> Box<dyn Sampler + Send> {
        match (self.is_greedy(), self.dynatemp_range > 0.0) {
            (true, _) => Box::new(Greedy),
            (false, true) => Box::new(Dynamic(self.clone())),
            (false, false) => Box::new(Fixed(self.temperature)),
        }
    }

    fn looks_at(&self) -> Option<usize> {
        self.is_greedy().then_some(1)
    }
}

/// Leaves the best candidate.
pub(super) struct Greedy;

impl Sampler for Greedy {
    fn apply(&mut self, candidates: &mut Candidates) {
        candidates.keep_only(candidates.best());
    }
}

/// Divides the logits by a temperature above 0: below 1 sharper, above 1 flatter.
struct Fixed(f32);

impl Sampler for Fixed {
    fn apply(&mut self, candidates: &mut Candidates) {
        for candidate in &mut candidates.entries {
            candidate.logit /= self.0;
        }
    }
}

/// A temperature at most a range away from another one, the higher the less sure the model is.
struct Dynamic(Temperature);

impl Sampler for Dynamic {
    fn apply(&mut self, candidates: &mut Candidates) {
        if candidates.entries.len() < 2 {
            return;
        }
        candidates.sort_head(candidates.entries.len());
        candidates.softmax();
        let possible = candidates.entries.iter().filter(|entry| entry.p > 0.0);
        let entropy = possible.fold(0.0_f32, |sum, entry| sum - entry.p * entry.p.ln());
        let most = -(1.0 / candidates.entries.len() as f32).ln();
        let Temperature {
            temperature,
            dynatemp_range: range,
            dynatemp_exponent: exponent,
        } = self.0;
        let (low, high) = ((temperature - range).max(0.0), temperature + range);
        let temperature = low + (high - low) * (entropy / most).powf(exponent);
        match temperature <= 0.0 {
            true => Greedy.apply(candidates),
            false => Fixed(temperature).apply(candidates),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::candidates::tests::check;
    use super::*;

    #[test]
    fn logits_are_divided() {
        let before = [0.1, 0.2, 0.3, 0.4];
        check(&mut Fixed(1.0), &before, &before);
        // Half the temperature squares the odds.
        let squared = [1.0 / 30.0, 4.0 / 30.0, 9.0 / 30.0, 16.0 / 30.0];
        check(&mut Fixed(0.5), &before, &squared);
        check(&mut Greedy, &before, &[1.0]);
    }

    #[test]
    fn the_temperature_follows_the_entropy() {
        let mut dynamic = Dynamic(Temperature {
            temperature: 1.0,
            dynatemp_range: 0.5,
            dynatemp_exponent: 1.0,
        });
        // All equal: the highest temperature, which changes nothing.
        check(&mut dynamic, &[0.25; 4], &[0.25; 4]);
        // Entropy ln 2 of ln 4: the middle, which is 1.
        check(&mut dynamic, &[0.5, 0.5, 0.0, 0.0], &[0.5, 0.5, 0.0, 0.0]);
        // Entropy 0: the lowest.
        check(&mut dynamic, &[0.0, 1.0], &[1.0, 0.0]);
        dynamic.0.dynatemp_range = 1.0;
        check(&mut dynamic, &[0.0, 1.0], &[1.0]);
    }
}
