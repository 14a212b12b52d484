//! An encoder that learns which answers belong to which questions
//! (Reimers and Gurevych 2019, arXiv:1908.10084).

use rustorch::nn::{CrossEntropyOptions, Embedding, Forward, LayerNorm, Module};
use rustorch::optim::lr_scheduler::{LambdaLR, LrScheduler};
use rustorch::optim::{AdamW, AdamWOptions};
use rustorch::prelude::*;

use super::Setting;
use super::block::Block;
use super::numbers::{initialised, integers};

#[derive(Module)]
struct MiniLm {
    word: Embedding,
    position: Embedding,
    norm: LayerNorm,
    blocks: Vec<Block>,
}

impl MiniLm {
    /// Vectors `[batch, width]` of length 1: the mean over the words.
    fn forward(&self, ids: &Tensor, is_word: &Tensor) -> RusTorchResult<Tensor> {
        let places = Tensor::arange_with(0, ids.shape()[1], 1, DType::I64)?;
        let x = self
            .word
            .forward(ids)?
            .add(&self.position.forward(&places)?)?;
        let mut x = self.norm.forward(&x)?;
        let mask = is_word.unsqueeze(1)?.unsqueeze(1)?;
        for block in &self.blocks {
            x = block.forward(&x, AttentionOptions::default().mask(Some(&mask)))?;
        }
        let weights = is_word.unsqueeze(-1)?.to_dtype(x.dtype())?;
        let total = weights.sum(1, false)?.clamp_min(1e-9)?;
        x.mul(&weights)?
            .sum(1, false)?
            .div(&total)?
            .normalize(2.0, 1, 1e-12)
    }
}

pub(crate) fn losses(
    Setting {
        scale,
        steps,
        dtype,
    }: Setting,
) -> RusTorchResult<Vec<f64>> {
    let (vocab, width, longest, batch) = (30, 32 * scale, 12 * scale, 6 * scale);
    let model = MiniLm {
        word: Embedding::new(vocab, width)?,
        position: Embedding::new(longest, width)?,
        norm: LayerNorm::new(width)?.eps(1e-12),
        blocks: vec![Block::new(width)?, Block::new(width)?],
    };
    let model = initialised(model, dtype)?;
    let options = AdamWOptions::default().lr(2e-3).weight_decay(0.01);
    let mut opt = AdamW::new(model.named_parameters(), options)?;
    let warm_up =
        move |n: usize| ((n + 1) as f64 / 4.0).min((steps as f64 - n as f64) / steps as f64);
    let mut schedule = LrScheduler::new(&mut opt, LambdaLR(warm_up))?;
    let vectors = |side: &str, step: usize| {
        let lengths = integers(&format!("{side} lengths {step}"), longest, &[batch])?.add(1)?;
        let is_word = Tensor::arange_with(0, longest, 1, DType::I64)?.lt(&lengths.unsqueeze(1)?)?;
        let ids = integers(&format!("{side} {step}"), vocab, &[batch, longest])?;
        model.forward(&ids, &is_word)
    };
    let mut losses = Vec::new();
    for step in 0..steps {
        let (questions, answers) = (vectors("question", step)?, vectors("answer", step)?);
        let scores = questions.mul(20.0)?.matmul(&answers.t()?)?;
        let own = Tensor::arange_with(0, batch, 1, DType::I64)?;
        let loss = scores.cross_entropy(&own, &CrossEntropyOptions::default())?;
        opt.zero_grad();
        loss.backward()?;
        opt.step()?;
        schedule.step(&mut opt)?;
        losses.push(loss.item()?);
    }
    Ok(losses)
}
