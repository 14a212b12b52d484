//! Speculative decoding: a cheap draft proposes tokens, and the model checks several of them in one pass. Such a
//! pass takes less time than a pass for each (Leviathan et al. 2023, arXiv:2211.17192).
//!
//! A drafted token is accepted if the sampler chooses it from the model's logits at its position. So the text is the
//! same as without drafts, up to [rounding](SpeculationOptions::max). [`Policy`] pauses drafting if measured times
//! promise no gain.

mod model;
mod ngram;
mod policy;

use std::time::{Duration, Instant};

pub use model::ModelDraft;
pub use ngram::NgramDraft;

use crate::LlmError;
use policy::{LENGTHS, Pass, Policy, at_most};

/// A source of drafted tokens.
pub trait Draft {
    /// Likely next tokens after `tokens`, the whole text so far, at most `max`. The list is empty
    /// without a guess.
    ///
    /// # Errors
    /// Fails if no device is left to draft on.
    fn propose(&mut self, tokens: &[u32], max: usize) -> Result<Vec<u32>, LlmError>;
}

/// Limits of drafts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpeculationOptions {
    /// Maximum number of drafted tokens at a time; values above 15 count as 15. Up to three, the CPU computes
    /// the same logits as without drafts. With more, sums are in another order, and one of two nearly equal
    /// tokens may replace the other.
    pub max: usize,
    /// Minimum number of drafted tokens; shorter drafts are not checked.
    pub min: usize,
    /// Adapts the number of drafted tokens to measured times and acceptance. Otherwise it is always
    /// the maximum.
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

/// Statistics of drafting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpeculationStats {
    /// Number of drafted tokens that were checked.
    pub drafted: usize,
    /// Accepted tokens.
    pub accepted: usize,
    /// Number of passes that checked drafts.
    pub passes: usize,
    /// Time for drafting.
    pub drafting: Duration,
}

impl SpeculationStats {
    /// The share of accepted tokens; `None` if none were checked.
    pub fn acceptance(&self) -> Option<f64> {
        (self.drafted > 0).then(|| self.accepted as f64 / self.drafted as f64)
    }
}

/// A [`Draft`] with its options. It may serve several texts in turn, and keeps its statistics.
pub struct Speculation<'d> {
    draft: Box<dyn Draft + 'd>,
    options: SpeculationOptions,
    policy: Policy,
    /// The latest pass, until its drafted tokens are checked.
    pass: Option<Pass>,
    stats: SpeculationStats,
}

impl<'d> Speculation<'d> {
    /// Creates a speculation that takes its drafts from `draft`.
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

    /// The draft to check after `text`: at most `room` tokens.
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

    /// Notes the time of the pass over the latest proposal.
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

    /// Statistics since the last call. Drafted tokens at the end of a text, which were not counted yet.
    pub(crate) fn take_stats(&mut self) -> SpeculationStats {
        self.pass = None;
        std::mem::take(&mut self.stats)
    }
}
