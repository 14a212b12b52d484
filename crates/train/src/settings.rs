//! What a run is asked for.

use rustorch_ir::DType;
use rustorch_ir::ops::{RopeLayout, RopeScaling};
use rustorch_llm::Config;
use serde::{Deserialize, Serialize};

use crate::TrainError;

/// The sizes of a model of the `llama` architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelSize {
    /// Tokens of the vocabulary.
    pub vocab: usize,
    /// Layers.
    pub layers: usize,
    /// Features of a token.
    pub width: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Features of the feed-forward part.
    pub ff: usize,
    /// Tokens of the context.
    pub context: usize,
}

impl ModelSize {
    /// The same as hyper-parameters of a model, with the architecture's own for all else.
    ///
    /// # Errors
    /// Sizes that do not go together.
    pub fn config(&self) -> Result<Config, TrainError> {
        let Self {
            vocab,
            layers,
            width,
            heads,
            kv_heads,
            ff,
            context,
        } = *self;
        let wrong = |problem: String| Err(TrainError::Setting(problem));
        if [vocab, layers, width, heads, kv_heads, ff, context].contains(&0) {
            return wrong("sizes of a model are at least 1".to_owned());
        }
        if !width.is_multiple_of(2 * heads) {
            return wrong(format!(
                "--width {width}: {heads} heads of an even width do not make it; choose a multiple of {}",
                2 * heads
            ));
        }
        if !heads.is_multiple_of(kv_heads) {
            return wrong(format!(
                "--kv-heads {kv_heads}: it does not divide the {heads} heads"
            ));
        }
        let head_width = width / heads;
        Ok(Config {
            architecture: "llama".to_owned(),
            layers,
            width,
            heads,
            kv_heads,
            key_width: head_width,
            value_width: head_width,
            ff_width: ff,
            vocab,
            context,
            rms_eps: 1e-5,
            rope_dims: head_width,
            rope_layout: RopeLayout::Interleaved,
            rope_base: 10_000.0,
            rope_scaling: RopeScaling::NONE,
        })
    }
}

/// What steps compute with. Parameters and the optimiser's states are `f32` in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// All in `f32`.
    F32,
    /// Products and attention in `bf16`, as [`autocast`](rustorch_tensor::amp::autocast) has it.
    BF16,
    /// Products and attention in `f16`, with losses that a [`GradScaler`](rustorch_nn::amp::GradScaler) scales.
    F16,
}

impl Precision {
    /// What is computed in, where it is not `f32`.
    pub(crate) fn half(self) -> Option<DType> {
        match self {
            Self::F32 => None,
            Self::BF16 => Some(DType::BF16),
            Self::F16 => Some(DType::F16),
        }
    }
}

/// What a run's losses follow from, besides model and data. Two runs with the same settings compute the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Tokens of a sample.
    pub context: usize,
    /// Samples of a step.
    pub batch: usize,
    /// Steps of the whole run.
    pub steps: u64,
    /// The highest learning rate.
    pub lr: f64,
    /// That of the last step.
    pub min_lr: f64,
    /// Steps in which it rises.
    pub warmup: u64,
    /// AdamW's, of all that is no norm and no bias.
    pub weight_decay: f64,
    /// The largest norm of all gradients together; 0 for any.
    pub clip: f64,
    /// What steps compute with.
    pub precision: Precision,
    /// Of first weights and the order of samples.
    pub seed: u64,
    /// Steps from one validation and checkpoint to the next.
    pub every: u64,
}

impl Settings {
    /// Fails for settings that make no sense.
    ///
    /// # Errors
    /// The first such setting.
    pub fn check(&self) -> Result<(), TrainError> {
        let positive = |name, value: u64| match value {
            0 => Err(TrainError::Setting(format!(
                "{name} 0: expected at least 1"
            ))),
            _ => Ok(()),
        };
        positive("--context", self.context as u64)?;
        positive("--batch", self.batch as u64)?;
        positive("--every", self.every)?;
        for (name, value) in [
            ("--lr", self.lr),
            ("--min-lr", self.min_lr),
            ("--weight-decay", self.weight_decay),
            ("--clip", self.clip),
        ] {
            if !(value.is_finite() && value >= 0.0) {
                return Err(TrainError::Setting(format!(
                    "{name} {value}: expected a number from 0 on"
                )));
            }
        }
        if self.min_lr > self.lr {
            let (min, max) = (self.min_lr, self.lr);
            return Err(TrainError::Setting(format!(
                "--min-lr {min}: it is above --lr {max}"
            )));
        }
        Ok(())
    }
}
