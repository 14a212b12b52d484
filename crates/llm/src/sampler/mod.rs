//! Choosing the next token from a model's logits.
//!
//! The chain is llama.cpp's, in its order and with its defaults (`common/common.h`,
//! `common/sampling.cpp`): penalties → top-k → typical → top-p → min-p → temperature → draw. With
//! the same seed and the same logits it draws the same tokens. What C++ leaves open is fixed here:
//! candidates of equal logit are ordered by token id, and a NaN logit counts as −∞. Infinite logits
//! are valid: those of +∞ share all the probability, and if every logit is −∞ all tokens are
//! equally likely.

mod candidates;
mod dist;
mod greedy;
mod min_p;
mod mt19937;
mod penalties;
mod temperature;
mod top_k;
mod top_p;
mod typical;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

use thiserror::Error;

use candidates::Candidates;
use dist::Dist;
use greedy::Greedy;
use min_p::MinP;
use penalties::Penalties;
use temperature::Temperature;
use top_k::TopK;
use top_p::TopP;
use typical::Typical;

use crate::selection::{Scores, Selection};

/// One step of the chain: reweighs the candidates or leaves fewer of them. The last leaves one.
trait Sampler {
    /// Changes `candidates`, of which there is at least one before and after.
    fn apply(&mut self, candidates: &mut Candidates);

    /// Learns that `token` is now part of the text.
    fn accept(&mut self, _token: u32) {}
}

/// What the chain does. The default is llama.cpp's.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplerConfig {
    /// Seed of the draw; `None` takes a random one, which [`SamplerChain::seed`] reports.
    pub seed: Option<u32>,
    /// How many of the last tokens the three penalties look at; 0 turns them off.
    pub penalty_last_n: usize,
    /// Divides a positive logit of a repeated token and multiplies a negative one; 1 is off.
    pub repeat_penalty: f32,
    /// Taken from the logit of a repeated token, once for every time it occurs; 0 is off.
    pub frequency_penalty: f32,
    /// Taken once from the logit of a repeated token; 0 is off.
    pub presence_penalty: f32,
    /// Keeps this many of the best tokens; 0 is off.
    pub top_k: usize,
    /// Keeps the locally typical tokens up to this share of the probability; 1 is off.
    pub typical_p: f32,
    /// Keeps the best tokens up to this share of the probability; 1 is off.
    pub top_p: f32,
    /// Keeps tokens at least this fraction as likely as the best one; 0 is off.
    pub min_p: f32,
    /// Divides the logits; at 0 and below the best token is always taken.
    pub temperature: f32,
}

impl Default for SamplerConfig {
    fn default() -> Self {
        Self {
            seed: None,
            penalty_last_n: 64,
            repeat_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            top_k: 40,
            typical_p: 1.0,
            top_p: 0.95,
            min_p: 0.05,
            temperature: 0.8,
        }
    }
}

/// A [`SamplerConfig`] value with which nothing can be sampled.
#[derive(Clone, Debug, Error, PartialEq)]
#[error("sampling: {option} = {value} is impossible; give {expected}")]
pub struct SamplerError {
    /// The field of [`SamplerConfig`].
    pub option: &'static str,
    /// The value given.
    pub value: f32,
    /// The values that are possible.
    pub expected: &'static str,
}

impl SamplerConfig {
    fn validate(&self) -> Result<(), SamplerError> {
        let check = |ok: bool, option, value, expected| {
            if ok {
                Ok(())
            } else {
                Err(SamplerError {
                    option,
                    value,
                    expected,
                })
            }
        };
        const FINITE: &str = "a finite number";
        let share = |option, value: f32| {
            let inside = (0.0..=1.0).contains(&value);
            check(inside, option, value, "a number from 0 to 1")
        };
        share("top_p", self.top_p)?;
        share("min_p", self.min_p)?;
        share("typical_p", self.typical_p)?;
        let repeat_ok = self.repeat_penalty > 0.0 && self.repeat_penalty.is_finite();
        check(
            repeat_ok,
            "repeat_penalty",
            self.repeat_penalty,
            "a finite number above 0",
        )?;
        check(
            self.frequency_penalty.is_finite(),
            "frequency_penalty",
            self.frequency_penalty,
            FINITE,
        )?;
        check(
            self.presence_penalty.is_finite(),
            "presence_penalty",
            self.presence_penalty,
            FINITE,
        )?;
        check(
            self.temperature.is_finite(),
            "temperature",
            self.temperature,
            FINITE,
        )
    }

    fn penalises(&self) -> bool {
        let neutral = self.repeat_penalty == 1.0
            && self.frequency_penalty == 0.0
            && self.presence_penalty == 0.0;
        self.penalty_last_n > 0 && !neutral
    }
}

/// The samplers of a [`SamplerConfig`], with their memory of the text so far.
pub struct SamplerChain {
    samplers: Vec<Box<dyn Sampler + Send>>,
    candidates: Candidates,
    banned: Arc<[u32]>,
    /// How many of the best tokens the chain looks at; `None` for all.
    looks_at: Option<usize>,
    seed: u32,
}

impl SamplerChain {
    /// Builds the chain; samplers that are off take no part.
    ///
    /// # Errors
    /// [`SamplerError`] for a value that is NaN, infinite or out of range where that has no meaning.
    pub fn new(config: &SamplerConfig) -> Result<Self, SamplerError> {
        config.validate()?;
        let seed = config.seed.unwrap_or_else(random_seed);
        let mut samplers: Vec<Box<dyn Sampler + Send>> = Vec::new();
        if config.penalises() {
            samplers.push(Box::new(Penalties::new(config)));
        }
        let greedy = config.temperature <= 0.0;
        let typical = config.typical_p < 1.0;
        // Top-k, top-p and min-p always keep the best candidate: without `typical` they cannot
        // change a greedy choice.
        if !greedy || typical {
            if config.top_k > 0 {
                samplers.push(Box::new(TopK(config.top_k)));
            }
            if typical {
                samplers.push(Box::new(Typical::new(config.typical_p)));
            }
            if config.top_p < 1.0 {
                samplers.push(Box::new(TopP(config.top_p)));
            }
            if config.min_p > 0.0 {
                samplers.push(Box::new(MinP(config.min_p)));
            }
        }
        if greedy {
            samplers.push(Box::new(Greedy));
        } else {
            samplers.push(Box::new(Temperature(config.temperature)));
            samplers.push(Box::new(Dist::new(seed)));
        }
        let looks_at = match (config.penalises(), greedy && !typical, config.top_k) {
            (true, ..) | (false, false, 0) => None,
            (false, true, _) => Some(1),
            (false, false, k) => Some(k),
        };
        Ok(Self {
            samplers,
            candidates: Candidates::default(),
            banned: Arc::default(),
            looks_at,
            seed,
        })
    }

    /// From now on these tokens are impossible, as long as there are others.
    pub fn ban(&mut self, tokens: &[u32]) {
        self.banned = tokens.into();
    }

    /// The logits that the chain looks at: where it begins with the best tokens, only theirs.
    pub fn selection(&self) -> Selection {
        Selection {
            best: self.looks_at,
            banned: self.banned.clone(),
        }
    }

    /// Chooses a token by the logits that [`Self::selection`] asks for: the same as
    /// [`Self::sample`] by those of all tokens.
    ///
    /// # Panics
    /// As [`Self::sample`].
    pub fn choose(&mut self, scores: &Scores) -> u32 {
        match &scores.ids {
            None => self.sample(&scores.logits),
            Some(ids) => {
                self.candidates.load_best(ids, &scores.logits);
                self.apply()
            }
        }
    }

    /// Chooses a token, `logits[id]` being the model's score of token `id`. The chain does not
    /// remember its choice until [`accept`](Self::accept) is called.
    ///
    /// # Panics
    /// If `logits` is empty: a model without a vocabulary has no next token.
    pub fn sample(&mut self, logits: &[f32]) -> u32 {
        self.candidates.load(logits);
        self.banned.iter().for_each(|&id| self.candidates.ban(id));
        self.apply()
    }

    fn apply(&mut self) -> u32 {
        assert!(
            !self.candidates.entries.is_empty(),
            "sampling needs the logits of at least one token"
        );
        for sampler in &mut self.samplers {
            sampler.apply(&mut self.candidates);
        }
        self.candidates.entries[0].id
    }

    /// Adds `token` to the text that the penalties look at. As in llama.cpp the prompt's tokens
    /// belong to it as well as the generated ones.
    pub fn accept(&mut self, token: u32) {
        for sampler in &mut self.samplers {
            sampler.accept(token);
        }
    }

    /// The seed in use: the configured one, or the one chosen at random.
    pub fn seed(&self) -> u32 {
        self.seed
    }
}

/// A seed from the operating system's entropy, which the standard library uses for hash keys.
fn random_seed() -> u32 {
    RandomState::new().build_hasher().finish() as u32
}
