//! Architectures: one file each, and the list of them.
//!
//! An architecture reads its hyper-parameters from the file's keys, declares its weights by
//! their names there, and says its forward pass in tensor operations.

mod decoder;
mod llama;
mod qwen2;
mod qwen3;

use rustorch_tensor::{RusTorchResult, Tensor};

use crate::LlmError;
use crate::config::Config;
use crate::kv_cache::LayerCache;
use crate::weights::Weights;

/// A model with its weights.
pub trait Architecture: Send + Sync {
    /// Hyper-parameters.
    fn config(&self) -> &Config;

    /// Logits `[rows, vocab]`, `f32`, of the last `rows` of the tokens: `i32` `[t]`, at
    /// `positions`, `i32` `[t]`, which are consecutive. Writes to the cache.
    ///
    /// # Errors
    /// The operands' shapes do not fit.
    fn forward(
        &self,
        tokens: &Tensor,
        positions: &Tensor,
        cache: &[LayerCache],
        rows: usize,
    ) -> RusTorchResult<Tensor>;
}

type Load = fn(&Weights) -> Result<Box<dyn Architecture>, LlmError>;

/// Every architecture by its name in `general.architecture`.
const ARCHITECTURES: &[(&str, Load)] = &[
    (llama::NAME, llama::load),
    (qwen2::NAME, qwen2::load),
    (qwen3::NAME, qwen3::load),
];

/// The model of a file.
///
/// # Errors
/// Its architecture is not among the implemented ones, a key or weight is missing or wrong.
pub fn load(weights: &Weights) -> Result<Box<dyn Architecture>, LlmError> {
    let name = weights.gguf().metadata.str("general.architecture")?;
    let found = ARCHITECTURES.iter().find(|(known, _)| *known == name);
    let Some((_, load)) = found else {
        let known: Vec<&str> = ARCHITECTURES.iter().map(|(known, _)| *known).collect();
        return Err(LlmError::Unsupported {
            what: format!("architecture {name:?}"),
            supported: format!("{} are", known.join(", ")),
        });
    };
    load(weights)
}
