//! Penalties on tokens that occurred lately.

use std::collections::{HashMap, VecDeque};

use super::candidates::Candidates;
use super::definition::Definition;
use super::{Sampler, sampler};

sampler! {
    /// Penalties on tokens that occurred lately.
    Penalties: "penalties", Some('e');
    /// Number of last tokens that the penalties look at; 0 disables the penalties, -1 is the whole context
    repeat_last_n: i64 = 64, WHOLE, "--repeat-last-n N";
    /// Repetition penalty: divides the logit of a repeated token; 1 disables it
    repeat_penalty: f32 = 1.0, POSITIVE, "--repeat-penalty X";
    /// Presence penalty: subtracted from the logit of a token that occurred; 0 disables it
    presence_penalty: f32 = 0.0, FINITE, "--presence-penalty X";
    /// Frequency penalty: subtracted from a token's logit for each occurrence; 0 disables it
    frequency_penalty: f32 = 0.0, FINITE, "--frequency-penalty X";
}

impl Definition for Penalties {
    fn is_on(&self) -> bool {
        let neutral = self.repeat_penalty == 1.0
            && self.frequency_penalty == 0.0
            && self.presence_penalty == 0.0;
        self.repeat_last_n != 0 && !neutral
    }

    fn sampler(&self, _seed: u32) -> Box<dyn Sampler + Send> {
        Box::new(PenaltySampler::new(self))
    }
}

/// Lowers the logits of the last tokens: by a factor, by how often they occurred, and by having
/// occurred at all.
struct PenaltySampler {
    last_n: usize,
    repeat: f32,
    frequency: f32,
    presence: f32,
    window: VecDeque<u32>,
    /// Number of times that each token occurs in `window`.
    counts: HashMap<u32, u32>,
}

impl PenaltySampler {
    fn new(options: &Penalties) -> Self {
        Self {
            // A negative number stands for the whole text.
            last_n: usize::try_from(options.repeat_last_n).unwrap_or(usize::MAX),
            repeat: options.repeat_penalty,
            frequency: options.frequency_penalty,
            presence: options.presence_penalty,
            window: VecDeque::new(),
            counts: HashMap::new(),
        }
    }
}

impl Sampler for PenaltySampler {
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

    fn penalties(last_n: usize, repeat: f32, alpha: f32, text: &[u32]) -> PenaltySampler {
        let mut penalties = PenaltySampler::new(&Penalties {
            repeat_last_n: last_n as i64,
            repeat_penalty: repeat,
            frequency_penalty: alpha,
            presence_penalty: alpha,
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
