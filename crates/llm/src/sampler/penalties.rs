//! Penalties on tokens that occurred lately.

use std::collections::{HashMap, VecDeque};

use super::candidates::Candidates;
use super::{Sampler, SamplerConfig};

/// Lowers the logits of the last tokens: by a factor, by how often they occurred, and by having
/// occurred at all.
pub(super) struct Penalties {
    last_n: usize,
    repeat: f32,
    frequency: f32,
    presence: f32,
    window: VecDeque<u32>,
    /// Number of times that each token occurs in `window`.
    counts: HashMap<u32, u32>,
}

impl Penalties {
    pub(super) fn new(config: &SamplerConfig) -> Self {
        Self {
            last_n: config.penalty_last_n,
            repeat: config.repeat_penalty,
            frequency: config.frequency_penalty,
            presence: config.presence_penalty,
            window: VecDeque::new(),
            counts: HashMap::new(),
        }
    }
}

impl Sampler for Penalties {
    fn apply(&mut self, candidates: &mut Candidates) {
        for (&token, &count) in &self.counts {
            let Some(candidate) = candidates.of_token(token) else {
                continue;
            };
            // Dividing a negative logit would favour the token.
            if candidate.logit <= 0.0 {
                candidate.logit *= self.repeat;
            } else {
                candidate.logit /= self.repeat;
            }
            candidate.logit -= count as f32 * self.frequency + self.presence;
        }
        candidates.sorted = false;
    }

    fn accept(&mut self, token: u32) {
        *self.counts.entry(token).or_default() += 1;
        self.window.push_back(token);
        if self.window.len() > self.last_n
            && let Some(oldest) = self.window.pop_front()
            && let Some(count) = self.counts.get_mut(&oldest)
        {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::candidates::tests::check;
    use super::*;

    fn penalties(last_n: usize, repeat: f32, alpha: f32, text: &[u32]) -> Penalties {
        let mut penalties = Penalties::new(&SamplerConfig {
            penalty_last_n: last_n,
            repeat_penalty: repeat,
            frequency_penalty: alpha,
            presence_penalty: alpha,
            ..SamplerConfig::default()
        });
        text.iter().for_each(|&token| penalties.accept(token));
        penalties
    }

    #[test]
    fn probabilities_are_those_of_llama_cpp() {
        let even = [0.2; 5];
        let repeat: [(&[u32], [f32; 5]); 3] = [
            (&[0], [0.0, 0.25, 0.25, 0.25, 0.25]),
            (&[0, 1, 2], [0.0, 0.0, 0.0, 0.5, 0.5]),
            (&[0, 1, 2, 0, 0], [0.0, 0.0, 0.0, 0.5, 0.5]),
        ];
        for (text, after) in repeat {
            check(&mut penalties(text.len(), 50.0, 0.0, text), &even, &after);
        }
        let frequency_and_presence: [(&[u32], [f32; 5]); 3] = [
            (
                &[0],
                [0.000_011, 0.249_997, 0.249_997, 0.249_997, 0.249_997],
            ),
            (
                &[0, 1, 2],
                [0.000_023, 0.000_023, 0.000_023, 0.499_966, 0.499_966],
            ),
            (
                &[0, 1, 2, 0, 0],
                [0.0, 0.000_023, 0.000_023, 0.499_977, 0.499_977],
            ),
        ];
        for (text, after) in frequency_and_presence {
            check(&mut penalties(text.len(), 1.0, 5.0, text), &even, &after);
        }
    }

    #[test]
    fn only_the_last_tokens_count() {
        let text = [0, 0, 1, 2];
        check(
            &mut penalties(2, 50.0, 0.0, &text),
            &[0.2; 5],
            &[1.0 / 3.0, 0.0, 0.0, 1.0 / 3.0, 1.0 / 3.0],
        );
        let window = penalties(3, 50.0, 0.0, &text);
        assert_eq!(window.counts, HashMap::from([(0, 1), (1, 1), (2, 1)]));
    }
}
