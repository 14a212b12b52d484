//! The shape of most models: a decoder of equal layers.

use rustorch_tensor::{RusTorchResult, Tensor, with_device};

use super::Architecture;
use crate::LlmError;
use crate::blocks::{Embedding, Layer, Linear, Pass, RmsNorm, Rotary};
use crate::config::Config;
use crate::kv_cache::LayerCache;
use crate::weights::Weights;

/// A whole decoder, from token ids to logits: the architecture of models
/// whose layers are [`Layer`]s.
pub(super) struct Decoder {
    config: Config,
    embedding: Embedding,
    layers: Vec<Layer>,
    norm: RmsNorm,
    head: Linear,
    rotary: Rotary,
}

impl Decoder {
    /// All weights; the embedding table serves as the head where the file has none.
    pub(super) fn load(w: &Weights, config: Config) -> Result<Self, LlmError> {
        let c = &config;
        let embedding = Embedding::load(w, "token_embd", c.vocab, c.width)?;
        let head = match w.opt("output.weight", &[c.vocab, c.width])? {
            Some(_) => Linear::load(w, "output", c.vocab, c.width)?,
            None => embedding.tied_head(),
        };
        Ok(Self {
            layers: (0..c.layers)
                .map(|i| Layer::load(w, i, c))
                .collect::<Result<_, _>>()?,
            norm: RmsNorm::load(w, "output_norm", c.width, c.rms_eps)?,
            rotary: Rotary::load(w, c)?,
            embedding,
            head,
            config,
        })
    }
}

impl Architecture for Decoder {
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
        let t = tokens.shape()[0];
        let past = positions.narrow(0, 0, 1)?;
        let pass = Pass {
            positions,
            past: &past,
        };
        let embed = || self.embedding.forward(tokens);
        let mut device = cache.first().and_then(|layer| layer.device);
        let mut x = match device {
            Some(device) => with_device(device, embed)??,
            None => embed()?,
        };
        for (layer, cache) in self.layers.iter().zip(cache) {
            // What is computed from a tensor is computed where that was moved to.
            if let Some(next) = cache.device.filter(|_| cache.device != device) {
                x = x.to_device(next)?;
                device = cache.device;
            }
            x = layer.forward(&x, &pass, &self.rotary, cache)?;
        }
        let x = self.norm.forward(&x.narrow(0, t - rows, rows)?)?;
        self.head.forward(&x)
    }
}
