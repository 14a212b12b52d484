//! How many launches a step of training is.

extern crate rustorch_nn as rustorch;

use std::sync::{Arc, Mutex, PoisonError};

use rustorch::nn::{Forward, Linear, MSELoss, Module, ModuleList};
use rustorch::optim::{
    ASGDOptions, AdadeltaOptions, AdagradOptions, AdamOptions, AdamWOptions, AdamaxOptions,
    NAdamOptions, Optimizer, RAdamOptions, RMSpropOptions, RpropOptions, Rule, SGDOptions,
};
use rustorch::train::TrainStep;
use rustorch_cpu::Cpu;
use rustorch_ir::DType;
use rustorch_runtime::{Backend, Event, Observer, Routing, Runtime};
use rustorch_tensor::{RusTorchResult, Tensor, manual_seed, with_runtime};

/// The launches that it was told of.
#[derive(Default)]
struct Launches(Mutex<Vec<String>>);

impl Launches {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Observer for Launches {
    fn saw(&self, event: Event<'_>) {
        if let Event::Launched(launched) = event {
            let mut launches = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            launches.extend(launched.iter().map(|(launch, ..)| launch.name.clone()));
        }
    }
}

/// Layers of 150 parameters, of few shapes.
fn network() -> RusTorchResult<ModuleList<Linear>> {
    let layer = |i: usize| Linear::new(4 + i % 3, 4 + (i + 1) % 3);
    (0..75).map(layer).collect()
}

/// The launches of the third step, by fusing updates and without.
fn third_step<R: Rule + 'static>(options: R, fuses: bool) -> RusTorchResult<(Vec<String>, u32)> {
    let launches = Arc::new(Launches::default());
    let cpu: Arc<dyn Backend> = Arc::new(Cpu::new(1));
    let runtime = Runtime::new([cpu]);
    let routing = Routing {
        fuses,
        ..Routing::AUTO
    };
    with_runtime(&runtime, routing, || {
        manual_seed(1);
        let net = network()?;
        let optimizer = Optimizer::new(net.named_parameters(), options)?;
        let mut train = TrainStep::new(net, optimizer, |net: &ModuleList<Linear>, batch| {
            let mut x = batch[0].clone();
            for layer in net.iter() {
                x = layer.forward(&x)?.tanh()?;
            }
            MSELoss::default().forward(&x, &batch[1])
        })
        .clip_grad_norm(1.0, 2.0)?;
        let x = Tensor::ones([2, 4], DType::F32)?;
        let y = Tensor::zeros([2, 4], DType::F32)?;
        train.step(&[&x, &y])?;
        train.step(&[&x, &y])?;
        runtime.add_observer(launches.clone());
        let loss: f32 = train.step(&[&x, &y])?.to_scalar()?;
        Ok((launches.take(), loss.to_bits()))
    })
}

#[test]
fn updates_of_150_parameters_are_a_handful_of_launches() -> RusTorchResult<()> {
    fn few(options: impl Rule + 'static, name: &str) -> RusTorchResult<()> {
        let (fused, loss) = third_step(options.clone(), true)?;
        let (alone, same_loss) = third_step(options, false)?;
        assert_eq!(loss, same_loss, "{name}");
        // Forward and backward are the same.
        let of_updates = |launches: &[String]| {
            let is_update = |name: &&String| name.contains("foreach") || name.contains("assign");
            launches.iter().filter(is_update).count()
        };
        let saved = alone.len() - fused.len();
        println!(
            "{name}: {} launches, {} with updates one by one",
            fused.len(),
            alone.len()
        );
        assert!(of_updates(&fused) <= 8, "{name}: {fused:?}");
        assert!(of_updates(&alone) >= 150, "{name}");
        assert!(saved >= 250, "{name}: {saved}");
        // Forward and backward of 75 layers, without a launch for each parameter, but for some of these.
        let most = match name {
            "NAdam" | "ASGD" => 1000,
            _ => 600,
        };
        assert!(fused.len() < most, "{name}: {} launches", fused.len());
        Ok(())
    }
    few(SGDOptions::default().lr(0.1), "SGD")?;
    few(
        SGDOptions::default().lr(0.1).momentum(0.9),
        "SGD with momentum",
    )?;
    few(AdamOptions::default(), "Adam")?;
    few(AdamWOptions::default(), "AdamW")?;
    few(AdamaxOptions::default(), "Adamax")?;
    few(NAdamOptions::default(), "NAdam")?;
    few(RAdamOptions::default(), "RAdam")?;
    few(RMSpropOptions::default(), "RMSprop")?;
    few(AdagradOptions::default(), "Adagrad")?;
    few(AdadeltaOptions::default(), "Adadelta")?;
    few(ASGDOptions::default(), "ASGD")?;
    few(RpropOptions::default(), "Rprop")
}
