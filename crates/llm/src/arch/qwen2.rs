//! Qwen 2 and 2.5: biases on queries, keys and values (read where the file has them).

use rustorch_ir::ops::RopeLayout;
use rustorch_tensor::{RusTorchResult, Tensor};

use super::Architecture;
use crate::LlmError;
use crate::blocks::Decoder;
use crate::config::Config;
use crate::kv_cache::LayerCache;
use crate::weights::Weights;

pub(super) const NAME: &str = "qwen2";

struct Qwen2 {
    config: Config,
    decoder: Decoder,
}

pub(super) fn load(w: &Weights) -> Result<Box<dyn Architecture>, LlmError> {
    let config = Config::from_gguf(w.gguf(), NAME, RopeLayout::Halves)?;
    let decoder = Decoder::load(w, &config)?;
    Ok(Box::new(Qwen2 { config, decoder }))
}

impl Architecture for Qwen2 {
    fn config(&self) -> &Config {
        &self.config
    }

    fn forward(
        &self,
        tokens: &Tensor,
        positions: &Tensor,
        cache: &[LayerCache],
        rows: usize,
    ) -> RusTorchResult<Tensor> {
        self.decoder.forward(tokens, positions, cache, rows)
    }
}
