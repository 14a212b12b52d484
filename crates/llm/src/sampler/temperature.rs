//! Temperature.

use super::Sampler;
use super::candidates::Candidates;

/// Divides the logits by a temperature above 0: below 1 sharper, above 1 flatter.
pub(super) struct Temperature(pub(super) f32);

impl Sampler for Temperature {
    fn apply(&mut self, candidates: &mut Candidates) {
        for candidate in &mut candidates.entries {
            candidate.logit /= self.0;
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
        check(&mut Temperature(1.0), &before, &before);
        // Half the temperature squares the odds.
        let squared = [1.0 / 30.0, 4.0 / 30.0, 9.0 / 30.0, 16.0 / 30.0];
        check(&mut Temperature(0.5), &before, &squared);
    }
}
