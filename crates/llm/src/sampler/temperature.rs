//! Temperature, and temperature that depends on the entropy
//! (<https://arxiv.org/abs/2403.14541> has the idea; the formula is llama.cpp's).

use super::Sampler;
use super::candidates::Candidates;

/// Divides the logits by a temperature: below 1 sharper, above 1 flatter. At 0 and below the best
/// candidate is left.
pub(super) struct Temperature(pub(super) f32);

impl Sampler for Temperature {
    fn apply(&mut self, candidates: &mut Candidates) {
        if self.0 <= 0.0 {
            candidates.keep_only(candidates.best());
            return;
        }
        for candidate in &mut candidates.entries {
            candidate.logit /= self.0;
        }
    }
}

/// A temperature at most `range` away from another one, the higher the less sure the model is.
pub(super) struct DynamicTemperature {
    pub(super) temperature: f32,
    pub(super) range: f32,
    pub(super) exponent: f32,
}

impl Sampler for DynamicTemperature {
    fn apply(&mut self, candidates: &mut Candidates) {
        if candidates.entries.len() < 2 {
            return;
        }
        candidates.sort_head(candidates.entries.len());
        candidates.softmax();
        let possible = candidates.entries.iter().filter(|entry| entry.p > 0.0);
        let entropy = possible.fold(0.0_f32, |sum, entry| sum - entry.p * entry.p.ln());
        let most = -(1.0 / candidates.entries.len() as f32).ln();
        let (low, high) = (
            (self.temperature - self.range).max(0.0),
            self.temperature + self.range,
        );
        let temperature = low + (high - low) * (entropy / most).powf(self.exponent);
        Temperature(temperature).apply(candidates);
    }
}

#[cfg(test)]
mod tests {
    use super::super::candidates::tests::check;
    use super::*;

    #[test]
    fn logits_are_divided() {
        let before = [0.1, 0.2, 0.3, 0.4];
        check(&mut Temperature(1.0), &before, &before);
        // Half the temperature squares the odds.
        let squared = [1.0 / 30.0, 4.0 / 30.0, 9.0 / 30.0, 16.0 / 30.0];
        check(&mut Temperature(0.5), &before, &squared);
        check(&mut Temperature(0.0), &before, &[1.0]);
    }

    #[test]
    fn the_temperature_follows_the_entropy() {
        let mut dynamic = DynamicTemperature {
            temperature: 1.0,
            range: 0.5,
            exponent: 1.0,
        };
        // All equal: the highest temperature, which changes nothing.
        check(&mut dynamic, &[0.25; 4], &[0.25; 4]);
        // Entropy ln 2 of ln 4: the middle, which is 1.
        check(&mut dynamic, &[0.5, 0.5, 0.0, 0.0], &[0.5, 0.5, 0.0, 0.0]);
        // Entropy 0: the lowest.
        check(&mut dynamic, &[0.0, 1.0], &[1.0, 0.0]);
        dynamic.range = 1.0;
        check(&mut dynamic, &[0.0, 1.0], &[1.0]);
    }
}
