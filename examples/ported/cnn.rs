//! A network of convolutions that classifies images.

use rustorch::nn::{
    BatchNorm2d, Conv2d, CrossEntropyOptions, Flatten, Forward, Linear, MaxPool2d, Module, ReLU,
    sequential,
};
use rustorch::optim::lr_scheduler::{LrScheduler, StepLR};
use rustorch::optim::{SGD, SGDOptions};
use rustorch::prelude::*;

use super::Setting;
use super::numbers::{initialised, integers, numbers};

pub(crate) fn losses(
    Setting {
        scale,
        steps,
        dtype,
    }: Setting,
) -> RusTorchResult<Vec<f64>> {
    let (batch, padded) = (8 * scale, ConvOptions::default().padding(1));
    let model = sequential![
        Conv2d::new(1, 4 * scale, 3, padded)?,
        BatchNorm2d::new(4 * scale)?,
        ReLU,
        MaxPool2d::new(2, MaxPoolOptions::default()),
        Conv2d::new(4 * scale, 8 * scale, 3, padded)?,
        BatchNorm2d::new(8 * scale)?,
        ReLU,
        MaxPool2d::new(2, MaxPoolOptions::default()),
        Flatten::default(),
        Linear::new(8 * scale * 9, 10)?,
    ];
    let model = initialised(model, dtype)?;
    let options = SGDOptions::default()
        .lr(0.05)
        .momentum(0.9)
        .nesterov(true)
        .weight_decay(1e-3);
    let mut opt = SGD::new(model.named_parameters(), options)?;
    let mut schedule = LrScheduler::new(&mut opt, StepLR::new(4).gamma(0.5))?;
    let smooth = CrossEntropyOptions::default().label_smoothing(0.1);
    let mut losses = Vec::new();
    for step in 0..steps {
        let images = numbers(&format!("images {step}"), &[batch, 1, 12, 12], dtype)?;
        let labels = integers(&format!("labels {step}"), 10, &[batch])?;
        let loss = model.forward(&images)?.cross_entropy(&labels, &smooth)?;
        opt.zero_grad();
        loss.backward()?;
        opt.step()?;
        schedule.step(&mut opt)?;
        losses.push(loss.item()?);
    }
    Ok(losses)
}
