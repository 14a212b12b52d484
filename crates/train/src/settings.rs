//! Settings of a run.

use rustorch_gguf::Metadata;
use rustorch_ir::DType;
use serde::{Deserialize, Serialize};

use crate::TrainError;

/// The sizes of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelSize {
    /// Vocabulary size.
    pub vocab: usize,
    /// Layers.
    pub layers: usize,
    /// Embedding width.
    pub width: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Width of the feed-forward part.
    pub ff: usize,
    /// Context size, in tokens.
    pub context: usize,
}

impl ModelSize {
    /// The keys of a model of this architecture and name.
    ///
    /// # Errors
    /// Fails for sizes that do not match each other.
    pub fn metadata(&self, architecture: &str, name: &str) -> Result<Metadata, TrainError> {
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
        let mut metadata = Metadata::new();
        metadata.insert("general.architecture", architecture);
        metadata.insert("general.name", name);
        let sizes = [
            ("context_length", context),
            ("embedding_length", width),
            ("block_count", layers),
            ("feed_forward_length", ff),
            ("attention.head_count", heads),
            ("attention.head_count_kv", kv_heads),
            ("rope.dimension_count", width / heads),
            ("vocab_size", vocab),
        ];
        for (key, size) in sizes {
            metadata.insert(format!("{architecture}.{key}"), size as u32);
        }
        let numbers = [
            ("attention.layer_norm_rms_epsilon", 1e-5_f32),
            ("rope.freq_base", 10_000.0),
        ];
        for (key, number) in numbers {
            metadata.insert(format!("{architecture}.{key}"), number);
        }
        Ok(metadata)
    }
}

/// The dtype of computations. Parameters and the optimiser's states are `f32` in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// Everything in `f32`.
    F32,
    /// Products and attention in `bf16`, as with [`autocast`](rustorch_tensor::amp::autocast).
    BF16,
    /// Products and attention in `f16`, with losses that a [`GradScaler`](rustorch_nn::amp::GradScaler) scales.
    F16,
}

impl Precision {
    /// The dtype of computations, if it is not `f32`.
    pub(crate) fn half(self) -> Option<DType> {
        match self {
            Self::F32 => None,
            Self::BF16 => Some(DType::BF16),
            Self::F16 => Some(DType::F16),
        }
    }
}

/// Settings that determine a run's losses, besides model and data. Two runs with the same settings compute the
/// same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrainingSettings {
    /// Tokens of a sample.
    pub context: usize,
    /// Batch size.
    pub batch: usize,
    /// Steps of the whole run.
    pub steps: u64,
    /// The highest learning rate.
    pub lr: f64,
    /// The learning rate of the last step.
    pub min_lr: f64,
    /// Warm-up steps, in which the rate rises.
    pub warmup: u64,
    /// AdamW's weight decay, except for norms and biases.
    pub weight_decay: f64,
    /// The maximum norm of all gradients together; 0 for no limit.
    pub clip: f64,
    /// The dtype of computations.
    pub precision: Precision,
    /// Seed of the initial weights and the sample order.
    pub seed: u64,
    /// Steps between validations and checkpoints.
    pub every: u64,
}

impl TrainingSettings {
    /// Checks the settings.
    ///
    /// # Errors
    /// Fails for the first invalid setting.
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
                    "{name} {value}: expected a number of at least 0"
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
