//! Speculative decoding: tokens are guessed cheaply, and the model checks several of them in one pass,
//! which takes little longer than a pass over one (Leviathan et al. 2023, arXiv:2211.17192).
//!
//! A guess is accepted if it is the token that the sampler chooses, by the model's logits at its place:
//! whatever is guessed, the text is the one that comes without. [`Policy`] sees to it that this is not
//! slower.

mod model;
mod ngram;
mod policy;

use std::time::{Duration, Instant};

pub use model::ModelDraft;
pub use ngram::NgramDraft;

use crate::LlmError;
use policy::{LENGTHS, Pass, Policy, at_most};

/// Guesses what comes next.
pub trait Draft {
    /// Tokens that may follow `tokens`, the whole text so far: the nearest first, at most `max`; none
    /// where it has no idea.
    ///
    /// # Errors
    /// It cannot guess any more: no device is left.
    fn propose(&mut self, tokens: &[u32], max: usize) -> Result<Vec<u32>, LlmError>;
}

/// How much is guessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpeculationOptions {
    /// Tokens that are guessed at a time, at most; more than 15 are never. Up to three, the CPU computes
    /// the very logits that it computes without guesses; with more, sums in another order, and of two
    /// tokens that are nearly equal the other one may be chosen.
    pub max: usize,
    /// Guesses of fewer tokens are not checked.
    pub min: usize,
    /// Whether to guess as much as pays, by the times and the accepted tokens that are measured; else
    /// always as much as may be.
    pub adaptive: bool,
}

impl Default for SpeculationOptions {
    fn default() -> Self {
        Self {
            max: 3,
            min: 0,
            adaptive: true,
        }
    }
}

/// What became of the guesses in a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpeculationStats {
    /// Tokens that were guessed and checked.
    pub drafted: usize,
    /// Those of them that are in the text.
    pub accepted: usize,
    /// Passes that checked some.
    pub passes: usize,
    /// How long it took to guess.
    pub drafting: Duration,
}

impl SpeculationStats {
    /// The part of the guesses that was right; `None` if there were none.
    pub fn acceptance(&self) -> Option<f64> {
        (self.drafted > 0).then(|| self.accepted as f64 / self.drafted as f64)
    }
}

/// A [`Draft`], and when it is asked. It may serve one text after the other: what it learned stays.
pub struct Speculation<'d> {
    draft: Box<dyn Draft + 'd>,
    options: SpeculationOptions,
    policy: Policy,
    /// The latest pass, until it shows what of it is right.
    pass: Option<Pass>,
    stats: SpeculationStats,
}

impl<'d> Speculation<'d> {
    /// Has `draft` guess.
    pub fn new(draft: impl Draft + 'd, options: SpeculationOptions) -> Self {
        let lengths = LENGTHS.into_iter();
        let allowed = lengths.filter(|&n| n <= options.max && n >= options.min);
        Self {
            draft: Box::new(draft),
            policy: Policy::new(allowed),
            options,
            pass: None,
            stats: SpeculationStats::default(),
        }
    }

    /// What to check behind `text`: at most `room` tokens.
    pub(crate) fn propose(&mut self, text: &[u32], room: usize) -> Result<Vec<u32>, LlmError> {
        let room = room.min(self.options.max);
        let asked = match self.options.adaptive {
            true => self.policy.length(room),
            false => at_most(room),
        };
        let mut pass = Pass {
            asked,
            ..Pass::default()
        };
        let mut ids = Vec::new();
        if asked > 0 {
            let begin = Instant::now();
            ids = self.draft.propose(text, asked)?;
            ids.truncate(at_most(ids.len().min(asked)));
            if ids.len() < self.options.min {
                ids.clear();
            }
            pass.drafting = begin.elapsed();
            pass.drafted = ids.len();
        }
        self.stats.drafting += pass.drafting;
        self.stats.drafted += ids.len();
        self.stats.passes += usize::from(!ids.is_empty());
        self.pass = Some(pass);
        Ok(ids)
    }

    /// The pass over what was proposed last took so long.
    pub(crate) fn fed(&mut self, time: Duration) {
        if let Some(pass) = &mut self.pass {
            pass.time = time;
        }
    }

    /// The next guess of the pass is right.
    pub(crate) fn accept(&mut self) {
        self.stats.accepted += 1;
        if let Some(pass) = &mut self.pass {
            pass.accepted += 1;
        }
    }

    /// The other guesses of the pass, if there are some, are wrong.
    pub(crate) fn settle(&mut self) {
        if let Some(pass) = self.pass.take() {
            self.policy.learn(&pass);
        }
    }

    /// What became of the guesses since this was asked last. Those at the end of a text that nobody
    /// came to count as guessed.
    pub(crate) fn take_stats(&mut self) -> SpeculationStats {
        self.pass = None;
        std::mem::take(&mut self.stats)
    }
}
