//! The configuration of a chain: its samplers, and whether they take part.

use rustorch_tokenizer::Tokenizer;

use super::definition::Definition;
use super::{SamplerConfig, SamplerKind, SamplerOption};
use crate::LlmError;

impl SamplerConfig {
    /// The options of all samplers.
    pub fn options() -> impl Iterator<Item = &'static SamplerOption> {
        Self::OPTIONS.iter().copied().flatten()
    }

    /// Takes from a model's vocabulary what samplers need of it: tokens of DRY's sequence breakers,
    /// token texts of infill.
    pub fn bind(&mut self, tokenizer: &Tokenizer) {
        for &kind in SamplerKind::ALL {
            if self.samplers.contains(&kind) && self.definition(kind).is_on() {
                self.definition_mut(kind).bind(tokenizer);
            }
        }
    }

    /// Checks the values without a model's vocabulary.
    ///
    /// # Errors
    /// [`LlmError`] for a value that is NaN, infinite or out of range where it is not allowed.
    pub fn check(&self) -> Result<(), LlmError> {
        Self::options().try_for_each(|option| option.check(self))?;
        let impossible = |bias: f32| bias.is_nan() || bias == f32::INFINITY;
        let biases = self.logit_bias.iter().map(|&(_, bias)| bias);
        match biases.into_iter().find(|&bias| impossible(bias)) {
            None => Ok(()),
            Some(bias) => Err(LlmError::Sampler {
                option: "logit_bias",
                value: bias.to_string(),
                expected: "a finite number, or −∞",
            }),
        }
    }

    /// # Errors
    /// The same as [`check`](Self::check), and samplers without the vocabulary that they need.
    pub(super) fn validate(&self) -> Result<(), LlmError> {
        self.check()?;
        let lacks = |kind: &&SamplerKind| self.definition(**kind).lacks_vocabulary();
        match self.samplers.iter().find(lacks) {
            None => Ok(()),
            Some(kind) => Err(LlmError::Sampler {
                option: "samplers",
                value: kind.to_string(),
                expected: "it to a model with a vocabulary",
            }),
        }
    }

    /// The same with Mirostat's meaning: it replaces all samplers, except the plain temperature.
    pub(super) fn resolved(&self) -> Self {
        match self.mirostat.is_on() {
            false => self.clone(),
            true => Self {
                samplers: vec![SamplerKind::Temperature, SamplerKind::Mirostat],
                ..self.clone().dynatemp_range(0.0)
            },
        }
    }

    /// The samplers that take part, except the one that draws.
    pub(super) fn active(&self) -> impl Iterator<Item = &dyn Definition> {
        let listed = self.samplers.iter().map(|&kind| self.definition(kind));
        listed.filter(|sampler| sampler.is_on() && !sampler.draws())
    }

    /// The sampler that draws, unless tokens are drawn by their probabilities.
    pub(super) fn draw(&self) -> Option<&dyn Definition> {
        let mut listed = self.samplers.iter().map(|&kind| self.definition(kind));
        listed.find(|sampler| sampler.is_on() && sampler.draws())
    }

    /// Number of the best tokens that the samplers look at; `None` for all.
    pub(super) fn looks_at(&self) -> Option<usize> {
        if !self.logit_bias.is_empty() {
            return None;
        }
        let decides = self.active().find(|sampler| !sampler.keeps_best());
        match decides.and_then(Definition::looks_at) {
            Some(1) => Some(1),
            _ => self.active().next().and_then(Definition::looks_at),
        }
    }
}
