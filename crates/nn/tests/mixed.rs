//! Steps in mixed precision, with losses that are scaled, and steps whose numbers are not finite.

extern crate rustorch_nn as rustorch;

use std::sync::{Mutex, MutexGuard, PoisonError};

use rustorch::amp::GradScaler;
use rustorch::nn::{Forward, LayerNorm, Linear, MSELoss, Module, ReLU, Sequential, sequential};
use rustorch::optim::{AdamW, AdamWOptions, Optimizer, SGD, SGDOptions};
use rustorch::train::TrainStep;
use rustorch_ir::DType;
use rustorch_tensor::amp::autocast;
use rustorch_tensor::{RusTorchResult, Tensor, manual_seed, tensor};

/// Held by who draws random numbers, whose generator is the process's.
fn generator() -> MutexGuard<'static, ()> {
    static GENERATOR: Mutex<()> = Mutex::new(());
    GENERATOR.lock().unwrap_or_else(PoisonError::into_inner)
}

fn network() -> RusTorchResult<Sequential> {
    manual_seed(2);
    Ok(sequential![
        Linear::new(3, 8)?,
        LayerNorm::new(8)?,
        ReLU,
        Linear::new(8, 1)?
    ])
}

fn loss(net: &Sequential, batch: &[Tensor]) -> RusTorchResult<Tensor> {
    MSELoss::default().forward(&net.forward(&batch[0])?, &batch[1])
}

fn batch() -> RusTorchResult<[Tensor; 2]> {
    let x = Tensor::from_fn([6, 3], |i| (i[0] as f32 - i[1] as f32) / 4.0)?;
    let y = x.sum(1, true)?;
    y.eval()?;
    Ok([x, y])
}

#[test]
fn programs_in_bf16_are_steps_bit_by_bit() -> RusTorchResult<()> {
    let _alone = generator();
    let [x, y] = batch()?;
    let mixed = |net: &Sequential, batch: &[Tensor]| autocast(DType::BF16, || loss(net, batch));
    let net = network()?;
    let mut adam = AdamW::new(net.named_parameters(), AdamWOptions::default().lr(0.01))?;
    let mut expected = Vec::new();
    for _ in 0..20 {
        let value = mixed(&net, &[x.clone(), y.clone()])?;
        assert_eq!(value.dtype(), DType::F32);
        value.backward()?;
        adam.step()?;
        adam.zero_grad();
        expected.push(value.item()?);
    }
    assert!(expected[19] < 0.7 * expected[0], "{expected:?}");
    let net = network()?;
    let adam = AdamW::new(net.named_parameters(), AdamWOptions::default().lr(0.01))?;
    let mut train = TrainStep::new(net, adam, mixed);
    for expected in expected {
        assert_eq!(train.step(&[&x, &y])?.item()?, expected);
    }
    Ok(())
}

/// A loss of `f16` products whose gradients are infinite until the scale is small enough.
#[test]
fn scales_fall_until_gradients_are_finite_and_grow_again() -> RusTorchResult<()> {
    let _alone = generator();
    let [x, y] = batch()?;
    let mixed = |net: &Sequential, batch: &[Tensor]| autocast(DType::F16, || loss(net, batch));
    let scaler = || GradScaler::new()?.init_scale(1e9)?.factors(2.0, 3, 0.25);
    let options = AdamWOptions::default().lr(0.01);

    let net = network()?;
    let mut adam = AdamW::new(net.named_parameters(), options)?;
    let mut eager = scaler()?;
    let mut expected = Vec::new();
    for _ in 0..24 {
        let value = mixed(&net, &[x.clone(), y.clone()])?;
        eager.scale(&value)?.backward()?;
        eager.step(&mut adam)?;
        eager.update()?;
        adam.zero_grad();
        expected.push((value.item()?, eager.get_scale()?, eager.skipped()?));
    }
    let (_, scale, skipped) = expected[23];
    assert!(skipped > 0 && skipped < 24 && scale < 1e9, "{expected:?}");
    assert!(
        expected.windows(2).any(|two| two[1].1 > two[0].1),
        "it grows"
    );
    assert!(expected[23].0 < expected[0].0);

    let net = network()?;
    let adam = AdamW::new(net.named_parameters(), options)?;
    let mut train = TrainStep::new(net, adam, mixed).grad_scaler(scaler()?);
    for (step, expected) in expected.into_iter().enumerate() {
        let loss = train.step(&[&x, &y])?.item()?;
        let scaler = train.scaler().expect("one");
        assert_eq!(
            (loss, scaler.get_scale()?, scaler.skipped()?),
            expected,
            "step {step}"
        );
    }
    Ok(())
}

#[test]
fn scalers_refuse_what_makes_no_sense() -> RusTorchResult<()> {
    // A layer draws its weights.
    let _alone = generator();
    for scale in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(GradScaler::new()?.init_scale(scale).is_err());
    }
    assert!(GradScaler::new()?.factors(1.0, 2000, 0.5).is_err());
    assert!(GradScaler::new()?.factors(2.0, 0, 0.5).is_err());
    assert!(GradScaler::new()?.factors(2.0, 1, 1.5).is_err());
    let mut scaler = GradScaler::new()?;
    assert!(scaler.update().is_err(), "before a step");
    let net = Linear::new(1, 1)?;
    let sgd = SGD::new(net.named_parameters(), SGDOptions::default())?;
    scaler.unscale_(&sgd)?;
    assert!(scaler.unscale_(&sgd).is_err(), "twice");
    Ok(())
}

#[derive(Module)]
struct Net {
    hidden: Linear,
    output: Linear,
}

impl Forward for Net {
    fn forward(&self, x: &Tensor) -> RusTorchResult<Tensor> {
        let hidden = self.hidden.forward(x)?.log()?;
        self.output.forward(&hidden.relu()?)
    }
}

#[test]
fn an_anomaly_is_named() -> RusTorchResult<()> {
    let _alone = generator();
    manual_seed(0);
    let new = |accumulated| {
        let net = Net {
            hidden: Linear::new(1, 1)?,
            output: Linear::new(1, 1)?,
        };
        for mut parameter in net.parameters() {
            rustorch::nn::init::constant_(&mut parameter, 1.0)?;
        }
        let sgd: Optimizer<SGDOptions> = SGD::new(net.named_parameters(), SGDOptions::default())?;
        let train = TrainStep::new(net, sgd, |net: &Net, batch| {
            net.forward(&batch[0])?.sum_all()
        });
        RusTorchResult::Ok(train.accumulate(accumulated)?.detect_anomaly())
    };
    for accumulated in [1, 2] {
        let mut train = new(accumulated)?;
        train.step(&[&tensor![[2.0]]])?;
        train.step(&[&tensor![[2.0]]])?;
        let before = train.module().state_dict();
        let before: Vec<f32> = before
            .iter()
            .map(|(_, x)| x.item().unwrap() as f32)
            .collect();
        // The logarithm of less than 0.
        let error = train.step(&[&tensor![[-9.0]]]).unwrap_err().to_string();
        let expected = "infinity or NaN in step 2, first by log at ";
        assert!(error.contains(expected), "{error}");
        assert!(
            error.contains("mixed.rs") && error.ends_with("at the module hidden"),
            "{error}"
        );
        let error = train
            .step(&[&tensor![[f32::INFINITY]]])
            .unwrap_err()
            .to_string();
        assert!(error.ends_with("first in tensor 0 of the batch"), "{error}");
        let after = train.module().state_dict();
        let after: Vec<f32> = after
            .iter()
            .map(|(_, x)| x.item().unwrap() as f32)
            .collect();
        assert_eq!(after, before);
        // Training goes on.
        assert!(train.step(&[&tensor![[2.0]]])?.item()?.is_finite());
    }
    Ok(())
}

/// The example of PyTorch's guide to several models and optimisers.
#[test]
fn a_scaler_has_several_optimisers() -> RusTorchResult<()> {
    let parameter = || rustorch::nn::parameter(tensor![1.0, 2.0]);
    let (a, b) = (parameter()?, parameter()?);
    let of = |p: &Tensor| SGD::new([p.clone()], SGDOptions::default().lr(0.5));
    let (mut first, mut second) = (of(&a)?, of(&b)?);
    let mut scaler = GradScaler::new()?.init_scale(4.0)?;
    scaler.scale(&a.add(&b)?.sum_all()?)?.backward()?;
    scaler.unscale_(&first)?;
    assert!(scaler.step(&mut first)? && scaler.step(&mut second)?);
    scaler.update()?;
    for p in [&a, &b] {
        assert_eq!(p.to_vec::<f32>()?, [0.5, 1.5]);
        p.zero_grad();
    }
    assert_eq!(scaler.get_scale()?, 4.0);
    // One of them overflows: its step is left out, and the scale falls.
    scaler
        .scale(&a.sub(&b.mul(f32::MAX)?)?.sum_all()?)?
        .backward()?;
    assert!(scaler.step(&mut first)? && !scaler.step(&mut second)?);
    scaler.update()?;
    assert_eq!(
        [a.to_vec::<f32>()?, b.to_vec::<f32>()?],
        [[0.0, 1.0], [0.5, 1.5]]
    );
    assert_eq!((scaler.get_scale()?, scaler.skipped()?), (2.0, 1));
    Ok(())
}

/// Two optimisers, each of which has the parameter `a` first: both step once, and not twice.
#[test]
fn a_scaler_knows_optimisers_that_share_a_parameter_apart() -> RusTorchResult<()> {
    let a = rustorch::nn::parameter(tensor![1.0])?;
    let of = || SGD::new([a.clone()], SGDOptions::default().lr(0.5));
    let (mut first, mut second) = (of()?, of()?);
    let mut scaler = GradScaler::new()?.init_scale(4.0)?;
    scaler.scale(&a.sum_all()?)?.backward()?;
    assert!(scaler.step(&mut first)?);
    // The second divides the shared gradient by the scale again, as PyTorch does.
    assert!(scaler.step(&mut second)?);
    assert!(scaler.step(&mut second).is_err());
    assert_eq!(a.to_vec::<f32>()?, [1.0 - 0.5 - 0.125]);
    Ok(())
}
