//! Requests to an engine, and the events that answer them.

use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rustorch_grammar::Constraint;

use crate::LlmError;
use crate::generate::{Speed, Stop};
use crate::sampler::SamplerConfig;

/// A text to continue, and how.
#[derive(Clone, Default)]
pub struct Request {
    /// Tokens of the prompt; at least one.
    pub prompt: Vec<u32>,
    /// Maximum number of tokens to generate; `None` for the room in the context.
    pub max_tokens: Option<usize>,
    /// The samplers of this text.
    pub sampler: SamplerConfig,
    /// The form that the text must have.
    pub constraint: Option<Constraint>,
    /// Excluded tokens, besides those that the model's file suppresses.
    pub banned: Vec<u32>,
    /// Excludes end-of-text tokens.
    pub ignore_end: bool,
    /// Adds to each token its log probability and those of this number of the likeliest tokens. They are the model's,
    /// before any sampler.
    pub logprobs: Option<usize>,
    /// The same for each token of the prompt but the first. The whole prompt is then computed, whatever is cached.
    pub prompt_logprobs: Option<usize>,
    /// Log probabilities are those after the samplers. Tokens that the samplers left out have none.
    pub sampled_logprobs: bool,
    /// The slot that computes it; `None` for any. The request waits until the slot is free.
    pub slot: Option<usize>,
    /// Computes the whole prompt, whatever is cached.
    pub recompute: bool,
    /// Number of first tokens that stay when the context is full: the older half of the others is dropped, and the
    /// text goes on. `None` ends the text there.
    pub shift: Option<usize>,
    /// Salt of the cache: only requests of equal salts share computed beginnings.
    pub cache_salt: u64,
    /// The request fails with [`LlmError::Deadline`] after this time.
    pub deadline: Option<Instant>,
    /// Requests of higher priority begin first; equals begin in the order of their submission.
    pub priority: i32,
}

impl Request {
    /// A request for a continuation of `prompt` with default options.
    pub fn new(prompt: impl Into<Vec<u32>>) -> Self {
        Self {
            prompt: prompt.into(),
            ..Self::default()
        }
    }
}

/// Identity of a request in its engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub(super) u64);

/// Log probability of a token, and the likeliest tokens in its place.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprobs {
    /// Natural logarithm of the token's probability.
    pub logprob: f32,
    /// The likeliest tokens with their log probabilities, the likeliest first.
    pub top: Vec<(u32, f32)>,
}

impl TokenLogprobs {
    /// The same after the samplers, by the probabilities that they left, the likeliest first.
    pub(super) fn sampled(left: &[(u32, f32)], id: u32, count: usize) -> Self {
        let own = left.iter().find(|(token, _)| *token == id);
        let top = left.iter().take(count);
        Self {
            logprob: own.map_or(f32::NEG_INFINITY, |(_, p)| p.ln()),
            top: top.map(|&(token, p)| (token, p.ln())).collect(),
        }
    }

    /// The log probability of token `id`, and the `count` best, by the model's logits. NaN counts as −∞.
    pub(super) fn of(logits: &[f32], id: u32, count: usize) -> Self {
        let clean = |logit: f32| match logit.is_nan() {
            true => f32::NEG_INFINITY,
            false => logit,
        };
        let most = (logits.iter().copied().map(clean)).fold(f32::NEG_INFINITY, f32::max);
        let terms = logits
            .iter()
            .map(|&logit| f64::from(clean(logit) - most).exp());
        let total = f64::from(most) + terms.sum::<f64>().ln();
        let logprob = |logit: f32| (f64::from(clean(logit)) - total) as f32;
        let mut order: Vec<u32> = (0..logits.len() as u32).collect();
        let better = |a: &u32, b: &u32| {
            let [x, y] = [a, b].map(|&id| clean(logits[id as usize]));
            y.total_cmp(&x).then(a.cmp(b))
        };
        let count = count.min(order.len());
        if 0 < count && count < order.len() {
            order.select_nth_unstable_by(count - 1, better);
        }
        order.truncate(count);
        order.sort_unstable_by(better);
        let top = order.into_iter();
        Self {
            logprob: logprob(logits[id as usize]),
            top: top.map(|id| (id, logprob(logits[id as usize]))).collect(),
        }
    }
}

/// Tokens and times of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Tokens of the prompt that were in the cache.
    pub cached: usize,
    /// Generated tokens, including the end token.
    pub generated: usize,
    /// Tokens that were dropped from a full context.
    pub dropped: usize,
    /// Time from the submission to the begin.
    pub queued: Duration,
    /// Tokens of the prompt that were computed, and the time from the begin to the first token.
    pub prefill: Speed,
    /// Tokens after the first, and their time.
    pub decode: Speed,
}

/// An event of a request. The last one is [`Self::Done`] or [`Self::Failed`], and exactly one of both comes.
#[derive(Debug)]
#[non_exhaustive]
pub enum EngineEvent {
    /// The request left the queue.
    Started {
        /// Tokens of the prompt that were in the cache.
        cached: usize,
    },
    /// A part of the prompt was processed.
    Prompt {
        /// Tokens of the prompt that are done.
        done: usize,
        /// Log probabilities of the processed tokens, except the prompt's first, if the request asked for them.
        logprobs: Vec<TokenLogprobs>,
    },
    /// A token was generated.
    Token {
        /// The token.
        id: u32,
        /// Its log probability, where asked for.
        logprobs: Option<TokenLogprobs>,
    },
    /// The text ended.
    Done {
        /// The reason; [`Stop::Caller`] after a cancellation.
        stop: Stop,
        /// Tokens and times.
        usage: Usage,
    },
    /// The request failed.
    Failed(LlmError),
}

impl EngineEvent {
    /// Returns whether it is a request's last event.
    pub fn is_last(&self) -> bool {
        matches!(self, Self::Done { .. } | Self::Failed(_))
    }
}

/// The receiver of a request's events, on the engine's thread.
pub(super) type Sink = Box<dyn FnMut(EngineEvent) -> ControlFlow<()> + Send>;

/// Events of a request, in order. Dropping the stream cancels the request.
pub struct Stream {
    pub(super) id: RequestId,
    pub(super) events: Receiver<EngineEvent>,
    pub(super) ended: bool,
}

impl Stream {
    /// The request's identity.
    pub fn id(&self) -> RequestId {
        self.id
    }

    /// The next event, or `None` if none comes in time, or if the request has ended.
    pub fn next_timeout(&mut self, timeout: Duration) -> Option<EngineEvent> {
        match self.ended {
            true => None,
            false => match self.events.recv_timeout(timeout) {
                Err(RecvTimeoutError::Timeout) => None,
                Ok(event) => Some(self.passed(Some(event))),
                Err(RecvTimeoutError::Disconnected) => Some(self.passed(None)),
            },
        }
    }

    /// Waits for the end. Returns the generated tokens, the reason of the end, and the usage.
    ///
    /// # Errors
    /// Returns the error of the request.
    pub fn finish(self) -> Result<(Vec<u32>, Stop, Usage), LlmError> {
        let mut ids = Vec::new();
        for event in self {
            match event {
                EngineEvent::Token { id, .. } => ids.push(id),
                EngineEvent::Done { stop, usage } => return Ok((ids, stop, usage)),
                EngineEvent::Failed(error) => return Err(error),
                EngineEvent::Started { .. } | EngineEvent::Prompt { .. } => {}
            }
        }
        Err(gone())
    }

    /// The event that the engine sent, or the failure that stands for an engine whose thread ended without one.
    fn passed(&mut self, event: Option<EngineEvent>) -> EngineEvent {
        let event = event.unwrap_or_else(|| EngineEvent::Failed(gone()));
        self.ended = event.is_last();
        event
    }
}

impl Iterator for Stream {
    type Item = EngineEvent;

    fn next(&mut self) -> Option<EngineEvent> {
        match self.ended {
            true => None,
            false => {
                let event = self.events.recv().ok();
                Some(self.passed(event))
            }
        }
    }
}

/// The error of a request whose engine ended.
pub(super) fn gone() -> LlmError {
    LlmError::Stopped("the engine")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_probabilities_are_those_of_a_softmax() {
        let logits = [1.0, f32::NAN, 3.0, 3.0, f32::NEG_INFINITY];
        let found = TokenLogprobs::of(&logits, 0, 3);
        let total = (1.0_f64.exp() + 2.0 * 3.0_f64.exp()).ln();
        assert!((f64::from(found.logprob) - (1.0 - total)).abs() < 1e-6);
        let ids: Vec<u32> = found.top.iter().map(|&(id, _)| id).collect();
        assert_eq!(ids, [2, 3, 0]);
        assert!((f64::from(found.top[0].1) - (3.0 - total)).abs() < 1e-6);
        assert_eq!(TokenLogprobs::of(&logits, 1, 0).logprob, f32::NEG_INFINITY);
        assert_eq!(TokenLogprobs::of(&logits, 2, 9).top.len(), 5);
    }
}
