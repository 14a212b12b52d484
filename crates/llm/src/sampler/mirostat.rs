//! Mirostat (Basu et al., <https://arxiv.org/abs/2007.14966>), both versions.

use super::candidates::{Candidate, Candidates};
use super::definition::Definition;
use super::dist::draw;
use super::mt19937::Mt19937;
use super::{Sampler, sampler};

sampler! {
    /// Mirostat: keeps the surprise near a target. It replaces all samplers except the temperature.
    Mirostat: "mirostat", None;
    /// Mirostat: version 1 or 2, in place of all samplers but temperature; 0 disables it
    mirostat: i64 = 0, UP_TO_TWO, "--mirostat VERSION";
    /// Mirostat: learning rate (η)
    mirostat_eta: f32 = 0.1, FINITE, "--mirostat-lr X";
    /// Mirostat: target entropy (τ), in bits
    mirostat_tau: f32 = 5.0, FINITE, "--mirostat-ent X";
}

impl Definition for Mirostat {
    fn is_on(&self) -> bool {
        self.mirostat != 0
    }

    fn sampler(&self, seed: u32) -> Box<dyn Sampler + Send> {
        Box::new(MirostatSampler {
            options: self.clone(),
            mu: 2.0 * self.mirostat_tau,
            rng: Mt19937::new(seed),
        })
    }

    fn draws(&self) -> bool {
        true
    }
}

/// Candidates that the exponent of the probabilities is estimated from.
const ESTIMATED_FROM: usize = 100;

/// Draws so that the surprise stays near a target, and leaves the drawn token only.
struct MirostatSampler {
    options: Mirostat,
    /// The largest surprise that is let pass, which learns.
    mu: f32,
    rng: Mt19937,
}

impl MirostatSampler {
    /// Number of the sorted candidates that may be drawn.
    fn kept(&self, candidates: &Candidates) -> usize {
        match self.options.mirostat {
            1 => kept_by_estimate(candidates, self.mu),
            _ => {
                let surprising = |entry: &Candidate| -entry.p.log2() > self.mu;
                let kept = candidates.entries.iter().position(surprising);
                kept.unwrap_or(candidates.entries.len())
            }
        }
    }
}

/// The first version: probabilities fall as a power of the rank, which is estimated.
fn kept_by_estimate(candidates: &Candidates, mu: f32) -> usize {
    let entries = &candidates.entries;
    let (mut products, mut squares) = (0.0_f32, 0.0_f32);
    for (i, pair) in entries.windows(2).take(ESTIMATED_FROM - 1).enumerate() {
        let t = ((i + 2) as f32 / (i + 1) as f32).ln();
        products += t * (pair[0].p / pair[1].p).ln();
        squares += t * t;
    }
    let s = products / squares;
    let epsilon = s - 1.0;
    let scale = (epsilon * 2.0_f32.powf(mu)) / (1.0 - (entries.len() as f32).powf(-epsilon));
    let k = scale.powf(1.0 / s);
    // x86 processors have no 32-bit integer for NaN or for a number that is too large.
    match k < i32::MAX as f32 {
        true => k as usize,
        false => 1,
    }
}

impl Sampler for MirostatSampler {
    fn apply(&mut self, candidates: &mut Candidates) {
        candidates.sort_head(candidates.entries.len());
        candidates.softmax();
        let kept = self.kept(candidates).clamp(1, candidates.entries.len());
        candidates.truncate_sorted(kept);
        candidates.softmax();
        let drawn = draw(&mut self.rng, candidates);
        let surprise = -candidates.entries[drawn].p.log2();
        self.mu -= self.options.mirostat_eta * (surprise - self.options.mirostat_tau);
        candidates.keep_only(drawn);
    }
}
