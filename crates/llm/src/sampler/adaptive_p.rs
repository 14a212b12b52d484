//! Adaptive-p (<https://github.com/ggml-org/llama.cpp/pull/17927>).

use super::candidates::Candidates;
use super::definition::Definition;
use super::dist::draw;
use super::mt19937::Mt19937;
use super::{Sampler, sampler};

sampler! {
    /// A draw near an adaptive target probability; it ends the chain at any position.
    AdaptiveP: "adaptive_p", Some('a');
    /// adaptive_p: target probability of the chosen tokens; negative disables it
    adaptive_target: f32 = -1.0, FINITE, "--adaptive-target P";
    /// adaptive_p: decay rate, 0 to 0.99; lower reacts faster, higher is more stable
    adaptive_decay: f32 = 0.9, SHARE, "--adaptive-decay X";
}

impl Definition for AdaptiveP {
    fn is_on(&self) -> bool {
        true
    }

    fn sampler(&self, seed: u32) -> Box<dyn Sampler + Send> {
        let (target, decay) = (self.adaptive_target, self.adaptive_decay);
        Box::new(AdaptiveSampler::new(target, decay, seed))
    }

    fn draws(&self) -> bool {
        true
    }
}

/// The new logit at the target, and how it falls: quadratically within the width, then linearly.
const PEAK: f32 = 5.0;
const SHARPNESS: f32 = 10.0;
const WIDTH: f32 = 0.3;

/// Draws a candidate whose probability is near a target, which makes good for earlier draws, and
/// leaves it.
struct AdaptiveSampler {
    /// Below 0, draws by probability.
    target: f32,
    decay: f32,
    rng: Mt19937,
    /// Probabilities of the text's tokens, each later one weighing more.
    sum: f32,
    weight: f32,
    /// The chosen token, with its probability.
    drawn: Option<(u32, f32)>,
}

impl AdaptiveSampler {
    fn new(target: f32, decay: f32, seed: u32) -> Self {
        let decay = decay.clamp(0.0, 0.99);
        Self {
            target,
            decay,
            rng: Mt19937::new(seed),
            sum: target / (1.0 - decay),
            weight: 1.0 / (1.0 - decay),
            drawn: None,
        }
    }
}

impl Sampler for AdaptiveSampler {
    fn apply(&mut self, candidates: &mut Candidates) {
        candidates.softmax();
        if self.target < 0.0 {
            let drawn = draw(&mut self.rng, candidates);
            candidates.keep_only(drawn);
            return;
        }
        let target = self.target.min(1.0);
        let adapted = (2.0 * target - self.sum / self.weight).clamp(0.0, 1.0);
        let before: Vec<f32> = candidates.entries.iter().map(|entry| entry.p).collect();
        for candidate in &mut candidates.entries {
            if candidate.logit != f32::NEG_INFINITY {
                let distance = ((candidate.p - adapted) * (1.0 / WIDTH)).abs();
                candidate.logit = PEAK - SHARPNESS * distance * distance / (1.0 + distance);
            }
        }
        candidates.sorted = false;
        candidates.softmax();
        let drawn = draw(&mut self.rng, candidates);
        self.drawn = Some((candidates.entries[drawn].id, before[drawn]));
        candidates.keep_only(drawn);
    }

    fn accept(&mut self, token: u32) {
        if let Some((drawn, p)) = self.drawn.take()
            && drawn == token
        {
            self.sum = p + self.decay * self.sum;
            self.weight = 1.0 + self.decay * self.weight;
        }
    }
}
