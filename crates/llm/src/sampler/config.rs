//! Configuration of a chain of samplers.

use std::sync::Arc;

use thiserror::Error;

use super::dry::Breakers;
use super::infill::InfillTokens;
use super::kind::SamplerKind;

/// The samplers of the chain. The default is llama.cpp's.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplerConfig {
    /// Seed of the draw; `None` takes a random one, which
    /// [`SamplerChain::seed`](super::SamplerChain::seed) reports.
    pub seed: Option<u32>,
    /// The samplers in their order. A sampler takes part if it is listed here and enabled.
    pub samplers: Vec<SamplerKind>,
    /// The bias of tokens' logits, before any sampler.
    pub logit_bias: Vec<(u32, f32)>,
    /// Number of last tokens that the three penalties look at; 0 disables them.
    pub penalty_last_n: usize,
    /// Repetition penalty: divides a positive logit of a repeated token and multiplies a negative
    /// one; 1 disables it.
    pub repeat_penalty: f32,
    /// Frequency penalty: subtracted from a token's logit for each occurrence; 0 disables it.
    pub frequency_penalty: f32,
    /// Presence penalty: subtracted once from the logit of a token that occurred; 0 disables it.
    pub presence_penalty: f32,
    /// Penalties on tokens that continue a repetition.
    pub dry: Dry,
    /// Keeps tokens whose logits are at most this many standard deviations below the best; 0 or
    /// less disables it.
    pub top_n_sigma: f32,
    /// Keeps this many of the best tokens; 0 disables it.
    pub top_k: usize,
    /// Keeps the locally typical tokens up to this total probability; 1 disables it.
    pub typical_p: f32,
    /// Keeps the best tokens up to this total probability; 1 disables it.
    pub top_p: f32,
    /// Keeps tokens at least this fraction as likely as the best one; 0 disables it.
    pub min_p: f32,
    /// Probability of removing the most likely tokens; 0 disables it.
    pub xtc_probability: f32,
    /// Minimum probability of a token that may be removed; above 0.5 disables it.
    pub xtc_threshold: f32,
    /// Temperature: divides the logits; 0 or less always picks the best token.
    pub temperature: f32,
    /// Range around the temperature, chosen by the entropy; 0 disables it.
    pub dynatemp_range: f32,
    /// Exponent of the normalised entropy that sets the temperature.
    pub dynatemp_exponent: f32,
    /// Target probability of [`SamplerKind::AdaptiveP`]; negative disables it.
    pub adaptive_target: f32,
    /// Decay rate of that sampler's history, at most 0.99.
    pub adaptive_decay: f32,
    /// Mirostat, which replaces `samplers` except the temperature.
    pub mirostat: Option<Mirostat>,
    /// The token texts for [`SamplerKind::Infill`].
    pub infill: Option<Arc<InfillTokens>>,
}

/// Penalties on tokens that continue a repetition.
#[derive(Clone, Debug, PartialEq)]
pub struct Dry {
    /// The penalty multiplier; 0 disables it.
    pub multiplier: f32,
    /// The growth factor per repeated token, at least 1.
    pub base: f32,
    /// Repetitions up to this length are not penalised.
    pub allowed_length: usize,
    /// Number of last tokens to search; 0 disables it.
    pub last_n: usize,
    /// Sequence breakers: texts that end a repetition.
    pub breakers: Arc<Breakers>,
}

/// Mirostat, which keeps the surprise near a target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mirostat {
    /// The version of Mirostat.
    pub version: MirostatVersion,
    /// The target (τ), in bits.
    pub entropy: f32,
    /// Learning rate (η).
    pub learning_rate: f32,
}

/// Versions of Mirostat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MirostatVersion {
    /// Version 1: estimates how probabilities fall.
    One,
    /// Version 2: drops tokens that are too surprising.
    Two,
}

impl Default for SamplerConfig {
    fn default() -> Self {
        Self {
            seed: None,
            samplers: SamplerKind::DEFAULT.to_vec(),
            logit_bias: Vec::new(),
            penalty_last_n: 64,
            repeat_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            dry: Dry {
                multiplier: 0.0,
                base: 1.75,
                allowed_length: 2,
                last_n: 64,
                breakers: Arc::default(),
            },
            top_n_sigma: -1.0,
            top_k: 40,
            typical_p: 1.0,
            top_p: 0.95,
            min_p: 0.05,
            xtc_probability: 0.0,
            xtc_threshold: 0.1,
            temperature: 0.8,
            dynatemp_range: 0.0,
            dynatemp_exponent: 1.0,
            adaptive_target: -1.0,
            adaptive_decay: 0.9,
            mirostat: None,
            infill: None,
        }
    }
}

/// A value of [`SamplerConfig`] that is out of range.
#[derive(Clone, Debug, Error, PartialEq)]
#[error("sampling: {option} = {value} is out of range; give {expected}")]
pub struct SamplerError {
    /// The field of [`SamplerConfig`].
    pub option: &'static str,
    /// The rejected value.
    pub value: String,
    /// The valid values.
    pub expected: &'static str,
}

impl SamplerConfig {
    /// # Errors
    /// [`SamplerError`] for a value that is NaN, infinite or out of range where it is not allowed.
    pub(super) fn validate(&self) -> Result<(), SamplerError> {
        let shares = [
            ("top_p", self.top_p),
            ("min_p", self.min_p),
            ("typical_p", self.typical_p),
            ("xtc_probability", self.xtc_probability),
            ("xtc_threshold", self.xtc_threshold),
            ("adaptive_decay", self.adaptive_decay),
        ];
        for (option, value) in shares {
            let inside = (0.0..=1.0).contains(&value);
            check(inside, option, value, "a number from 0 to 1")?;
        }
        let repeat_ok = self.repeat_penalty > 0.0 && self.repeat_penalty.is_finite();
        let (option, expected) = ("repeat_penalty", "a finite number above 0");
        check(repeat_ok, option, self.repeat_penalty, expected)?;
        let base_ok = self.dry.base >= 1.0 && self.dry.base.is_finite();
        check(
            base_ok,
            "dry_base",
            self.dry.base,
            "a finite number, at least 1",
        )?;
        let mirostat = self.mirostat.map(|it| [it.entropy, it.learning_rate]);
        let [entropy, learning_rate] = mirostat.unwrap_or_default();
        let numbers = [
            ("frequency_penalty", self.frequency_penalty),
            ("presence_penalty", self.presence_penalty),
            ("dry_multiplier", self.dry.multiplier),
            ("top_n_sigma", self.top_n_sigma),
            ("temperature", self.temperature),
            ("dynatemp_range", self.dynatemp_range),
            ("dynatemp_exponent", self.dynatemp_exponent),
            ("adaptive_target", self.adaptive_target),
            ("mirostat_entropy", entropy),
            ("mirostat_learning_rate", learning_rate),
        ];
        for (option, value) in numbers {
            check(value.is_finite(), option, value, "a finite number")?;
        }
        for &(_, bias) in &self.logit_bias {
            let ok = !bias.is_nan() && bias != f32::INFINITY;
            check(ok, "logit_bias", bias, "a finite number, or −∞")?;
        }
        let fills = self.samplers.contains(&SamplerKind::Infill);
        let expected = "it to a model with a vocabulary";
        let known = !fills || self.infill.is_some();
        check(known, "samplers", SamplerKind::Infill, expected)
    }

    /// Whether a sampler changes anything.
    pub(super) fn is_on(&self, kind: SamplerKind) -> bool {
        match kind {
            SamplerKind::Penalties => {
                let neutral = self.repeat_penalty == 1.0
                    && self.frequency_penalty == 0.0
                    && self.presence_penalty == 0.0;
                self.penalty_last_n > 0 && !neutral
            }
            SamplerKind::Dry => self.dry.multiplier != 0.0 && self.dry.last_n > 0,
            SamplerKind::TopNSigma => self.top_n_sigma > 0.0,
            SamplerKind::TopK => self.top_k > 0,
            SamplerKind::Typical => self.typical_p < 1.0,
            SamplerKind::TopP => self.top_p < 1.0,
            SamplerKind::MinP => self.min_p > 0.0,
            SamplerKind::Xtc => self.xtc_probability > 0.0 && self.xtc_threshold <= 0.5,
            SamplerKind::Temperature | SamplerKind::Infill | SamplerKind::AdaptiveP => true,
        }
    }

    /// The samplers that take part, but for the one that draws.
    pub(super) fn active(&self) -> Vec<SamplerKind> {
        if self.mirostat.is_some() {
            return vec![SamplerKind::Temperature];
        }
        let takes_part = |kind: &SamplerKind| *kind != SamplerKind::AdaptiveP && self.is_on(*kind);
        self.samplers.iter().copied().filter(takes_part).collect()
    }

    /// Whether the temperature leaves only the best token.
    pub(super) fn is_greedy(&self) -> bool {
        let dynamic = self.dynatemp_range > 0.0 && self.mirostat.is_none();
        self.temperature <= 0.0 && !dynamic
    }

    /// Number of the best tokens that the samplers look at; `None` for all.
    pub(super) fn looks_at(&self) -> Option<usize> {
        if !self.logit_bias.is_empty() {
            return None;
        }
        let active = self.active();
        let keeps_best = |kind: &SamplerKind| {
            use SamplerKind::{MinP, TopK, TopNSigma, TopP};
            matches!(kind, TopK | TopP | MinP | TopNSigma)
        };
        let decides = active.iter().find(|kind| !keeps_best(kind));
        if decides == Some(&SamplerKind::Temperature) && self.is_greedy() {
            return Some(1);
        }
        (active.first() == Some(&SamplerKind::TopK)).then_some(self.top_k)
    }
}

fn check(
    ok: bool,
    option: &'static str,
    value: impl ToString,
    expected: &'static str,
) -> Result<(), SamplerError> {
    match ok {
        true => Ok(()),
        false => Err(SamplerError {
            option,
            value: value.to_string(),
            expected,
        }),
    }
}
