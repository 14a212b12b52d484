//! A recurrent network that tags the words of sentences of several lengths.

use rustorch::nn::utils::rnn::{pack_padded_sequence, pad_packed_sequence};
use rustorch::nn::{
    self, CrossEntropyOptions, Embedding, Forward, LSTM, Linear, Module, RNNOptions,
};
use rustorch::optim::{Adam, AdamOptions};
use rustorch::prelude::*;

use super::Setting;
use super::numbers::{initialised, integers, whole};

#[derive(Module)]
struct Tagger {
    embedding: Embedding,
    lstm: LSTM,
    head: Linear,
}

impl Tagger {
    fn forward(&self, ids: &Tensor, lengths: &[usize]) -> RusTorchResult<Tensor> {
        let packed = pack_padded_sequence(&self.embedding.forward(ids)?, lengths, true)?;
        let (output, _) = self.lstm.forward_packed(&packed, None)?;
        let (output, _) = pad_packed_sequence(&output, true, 0.0, None)?;
        self.head.forward(&output)
    }
}

pub(crate) fn losses(
    Setting {
        scale,
        steps,
        dtype,
    }: Setting,
) -> RusTorchResult<Vec<f64>> {
    let (vocab, width, tags, batch, longest) = (20, 16 * scale, 5, 4 * scale, 9 * scale);
    let options = RNNOptions::default()
        .num_layers(2)
        .batch_first(true)
        .bidirectional(true);
    let model = Tagger {
        embedding: Embedding::new(vocab, width)?,
        lstm: LSTM::new(width, width, options)?,
        head: Linear::new(2 * width, tags)?,
    };
    let model = initialised(model, dtype)?;
    let mut opt = Adam::new(model.named_parameters(), AdamOptions::default().lr(5e-3))?;
    let mut losses = Vec::new();
    for step in 0..steps {
        let lengths = whole(&format!("lengths {step}"), longest, batch).into_iter();
        let mut lengths: Vec<usize> = lengths.map(|length| length as usize + 1).collect();
        lengths[0] = longest;
        let ids = integers(&format!("words {step}"), vocab, &[batch, longest])?;
        let mut wanted = whole(&format!("tags {step}"), tags, batch * longest);
        for (row, &length) in wanted.chunks_mut(longest).zip(&lengths) {
            row[length..].fill(-100);
        }
        let wanted = Tensor::from_vec(wanted, batch * longest)?;
        let scores = model.forward(&ids, &lengths)?.flatten(0, 1)?;
        let loss = scores.cross_entropy(&wanted, &CrossEntropyOptions::default())?;
        opt.zero_grad();
        loss.backward()?;
        nn::clip_grad_norm_(&model.parameters(), 0.5, 2.0, false)?;
        opt.step()?;
        losses.push(loss.item()?);
    }
    Ok(losses)
}
