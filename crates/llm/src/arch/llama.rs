//! Llama 1 to 3, TinyLlama, Mistral and the many models of their shape.

use rustorch_ir::ops::RopeLayout;
use rustorch_tensor::{RusTorchResult, Tensor};

use super::Architecture;
use crate::LlmError;
use crate::blocks::Decoder;
use crate::config::Config;
use crate::kv_cache::LayerCache;
use crate::weights::Weights;

pub(super) const NAME: &str = "llama";

struct Llama {
    config: Config,
    decoder: Decoder,
}

pub(super) fn load(w: &Weights) -> Result<Box<dyn Architecture>, LlmError> {
    let config = Config::from_gguf(w.gguf(), NAME, RopeLayout::Interleaved)?;
    let decoder = Decoder::load(w, &config)?;
    Ok(Box::new(Llama { config, decoder }))
}

impl Architecture for Llama {
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
