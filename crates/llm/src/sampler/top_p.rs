//! Top-p, also called nucleus sampling (Holtzman et al., <https://arxiv.org/abs/1904.09751>).

use super::candidates::Candidates;
use super::definition::Definition;
use super::{Sampler, sampler};

sampler! {
    /// Top-p: the best tokens up to a total probability.
    TopP: "top_p", Some('p');
    /// Top-p: keep the most likely tokens up to the total probability P; 1 disables it
    top_p: f32 = 0.95, SHARE, "--top-p P";
}

impl Definition for TopP {
    fn is_on(&self) -> bool {
        self.top_p < 1.0
    }

    fn sampler(&self, _seed: u32) -> Box<dyn Sampler + Send> {
        Box::new(self.clone())
    }

    fn keeps_best(&self) -> bool {
        true
    }
}

/// A large vocabulary is not sorted as a whole: mostly this many candidates hold the share.
const HEAD: usize = 256;
const LARGE: usize = 1024;

impl Sampler for TopP {
    /// Keeps the best candidates, best first, until their probabilities reach `top_p`.
    fn apply(&mut self, candidates: &mut Candidates) {
        candidates.softmax();
        let len = candidates.entries.len();
        let mut sorted = if candidates.sorted { len } else { 0 };
        let mut sum = 0.0f32;
        let mut keep = len;
        for i in 0..len {
            if i == sorted {
                sorted = if sorted == 0 && len > LARGE {
                    HEAD
                } else {
                    len
                };
                candidates.sort_head(sorted);
            }
            sum += candidates.entries[i].p;
            if sum >= self.top_p {
                keep = i + 1;
                break;
            }
        }
        candidates.truncate_sorted(keep);
    }
}

#[cfg(test)]
mod tests {
    use super::super::candidates::tests::{check, from_probabilities};
    use super::*;

    #[test]
    fn probabilities_are_those_of_llama_cpp() {
        let before = [0.1, 0.2, 0.3, 0.4];
        check(&mut TopP { top_p: 0.0 }, &before, &[1.0]);
        check(&mut TopP { top_p: 0.7 }, &before, &[0.571_429, 0.428_571]);
        check(
            &mut TopP { top_p: 0.8 },
            &before,
            &[0.44444, 0.33333, 0.22222],
        );
    }

    /// Token `i` of 10 000 has a probability proportional to `i`, as in llama.cpp's queue test.
    #[test]
    fn a_large_vocabulary_keeps_the_smallest_set_that_reaches_p() {
        let n = 10_000u32;
        let weights: Vec<f32> = (0..n).map(|i| i as f32).collect();
        for p in [0.0003f32, 0.01, 0.8] {
            let target = (p * (n * (n - 1) / 2) as f32).ceil() as u32;
            let mut sum = 0;
            let expected: Vec<u32> = (0..n)
                .rev()
                .take_while(|i| {
                    let wanted = sum < target;
                    sum += i;
                    wanted
                })
                .collect();
            let mut candidates = from_probabilities(&weights);
            TopP { top_p: p }.apply(&mut candidates);
            let ids: Vec<u32> = candidates
                .entries
                .iter()
                .map(|candidate| candidate.id)
                .collect();
            assert_eq!(ids, expected, "p = {p}");
        }
    }
}
