//! A transformer that writes character by character.

use rustorch::nn::{self, CrossEntropyOptions, Embedding, Forward, LayerNorm, Linear, Module};
use rustorch::optim::{AdamW, AdamWOptions};
use rustorch::prelude::*;

use super::Setting;
use super::block::Block;
use super::numbers::{initialised, integers};

#[derive(Module)]
struct CharGpt {
    token: Embedding,
    position: Embedding,
    blocks: Vec<Block>,
    norm: LayerNorm,
    head: Linear,
}

impl Forward for CharGpt {
    fn forward(&self, ids: &Tensor) -> RusTorchResult<Tensor> {
        let places = Tensor::arange_with(0, ids.shape()[1], 1, DType::I64)?;
        let mut x = self
            .token
            .forward(ids)?
            .add(&self.position.forward(&places)?)?;
        for block in &self.blocks {
            x = block.forward(&x, AttentionOptions::default().is_causal(true))?;
        }
        self.head.forward(&self.norm.forward(&x)?)
    }
}

pub(crate) fn losses(
    Setting {
        scale,
        steps,
        dtype,
    }: Setting,
) -> RusTorchResult<Vec<f64>> {
    let (vocab, width, context, batch) = (28, 32 * scale, 16 * scale, 4 * scale);
    let model = CharGpt {
        token: Embedding::new(vocab, width)?,
        position: Embedding::new(context, width)?,
        blocks: vec![Block::new(width)?, Block::new(width)?],
        norm: LayerNorm::new(width)?,
        head: Linear::new(width, vocab)?.without_bias(),
    };
    let model = initialised(model, dtype)?;
    let options = AdamWOptions::default().lr(1e-3).weight_decay(0.1);
    let mut opt = AdamW::new(model.named_parameters(), options)?;
    let mut losses = Vec::new();
    for step in 0..steps {
        let ids = integers(&format!("text {step}"), vocab, &[batch, context + 1])?;
        let scores = model.forward(&ids.i((.., ..context))?)?;
        let next = ids.i((.., 1..))?.reshape(-1)?;
        let loss = scores
            .reshape((-1, vocab))?
            .cross_entropy(&next, &CrossEntropyOptions::default())?;
        opt.zero_grad();
        loss.backward()?;
        nn::clip_grad_norm_(&model.parameters(), 1.0, 2.0, false)?;
        opt.step()?;
        losses.push(loss.item()?);
    }
    Ok(losses)
}
