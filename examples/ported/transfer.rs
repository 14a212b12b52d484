//! A trained network of which the last layers learn something else, each at a rate of its own.

use rustorch::nn::{BatchNorm2d, Conv2d, CrossEntropyOptions, Forward, Linear, Module};
use rustorch::optim::lr_scheduler::{CosineAnnealingLR, LrScheduler};
use rustorch::optim::{AdamW, AdamWOptions};
use rustorch::prelude::*;

use super::Setting;
use super::numbers::{initialised, integers, numbers};

#[derive(Module)]
struct Backbone {
    stem: Conv2d,
    norm: BatchNorm2d,
    last: Conv2d,
    last_norm: BatchNorm2d,
    head: Linear,
}

impl Forward for Backbone {
    fn forward(&self, x: &Tensor) -> RusTorchResult<Tensor> {
        let x = self.norm.forward(&self.stem.forward(x)?)?.relu()?;
        let x = self.last_norm.forward(&self.last.forward(&x)?)?.relu()?;
        self.head.forward(&x.mean((2, 3), false)?)
    }
}

pub(crate) fn losses(
    Setting {
        scale,
        steps,
        dtype,
    }: Setting,
) -> RusTorchResult<Vec<f64>> {
    let (batch, channels) = (8 * scale, 4 * scale);
    let padded = ConvOptions::default().padding(1);
    let model = Backbone {
        stem: Conv2d::new(3, channels, 3, padded.stride(2))?.without_bias(),
        norm: BatchNorm2d::new(channels)?,
        last: Conv2d::new(channels, 2 * channels, 3, padded)?.without_bias(),
        last_norm: BatchNorm2d::new(2 * channels)?,
        head: Linear::new(2 * channels, 4)?,
    };
    let mut model = initialised(model, dtype)?;
    model.eval();
    model.requires_grad_(false)?;
    model.head.requires_grad_(true)?;
    model.last.requires_grad_(true)?;
    let options = AdamWOptions::default();
    let mut opt = AdamW::new(model.head.parameters(), options.lr(1e-2))?;
    opt.add_param_group(model.last.parameters(), options.lr(1e-3))?;
    let mut schedule = LrScheduler::new(&mut opt, CosineAnnealingLR::new(steps))?;
    let mut losses = Vec::new();
    for step in 0..steps {
        let images = numbers(&format!("photos {step}"), &[batch, 3, 16, 16], dtype)?;
        let labels = integers(&format!("kinds {step}"), 4, &[batch])?;
        let loss = model
            .forward(&images)?
            .cross_entropy(&labels, &CrossEntropyOptions::default())?;
        opt.zero_grad();
        loss.backward()?;
        opt.step()?;
        schedule.step(&mut opt)?;
        losses.push(loss.item()?);
    }
    Ok(losses)
}
