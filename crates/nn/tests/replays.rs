//! Steps of training on a GPU that makes all launches of a program at once.

extern crate rustorch_nn as rustorch;

use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustorch::nn::{Dropout, Forward, GELU, LayerNorm, Linear, MSELoss, Module, sequential};
use rustorch::optim::lr_scheduler::CosineAnnealingLR;
use rustorch::optim::{AdamW, AdamWOptions};
use rustorch::train::TrainStep;
use rustorch_gpu::Gpu;
use rustorch_ir::DType;
use rustorch_runtime::{Backend, Event, Observer, Routing, Runtime};
use rustorch_tensor::{RusTorchResult, Tensor, manual_seed, with_runtime};
use rustorch_testing::{Suite, tests};

type Devices = Vec<Arc<dyn Backend>>;

/// Launches that were made one by one, and at once.
#[derive(Default)]
struct Counts {
    launched: AtomicUsize,
    replayed: AtomicUsize,
    names: Mutex<Vec<String>>,
}

impl Observer for Counts {
    fn saw(&self, event: Event<'_>) {
        match event {
            Event::Launched(launched) => {
                let count = launched.times.len();
                self.launched.fetch_add(count, Ordering::Relaxed);
                let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
                names.extend(launched.iter().map(|(launch, ..)| launch.name.clone()));
            }
            Event::Replayed { .. } => {
                self.replayed.fetch_add(1, Ordering::Relaxed);
            }
            _ => {}
        }
    }
}

impl Counts {
    fn take(&self) -> (usize, usize) {
        let take = |count: &AtomicUsize| count.swap(0, Ordering::Relaxed);
        (take(&self.launched), take(&self.replayed))
    }
}

/// Steps on one device, each with a batch of its own, with what was launched and replayed in each.
fn train(device: &Arc<dyn Backend>, steps: usize) -> RusTorchResult<Vec<(usize, usize)>> {
    let counts = Arc::new(Counts::default());
    let runtime = Runtime::new([device.clone()]);
    runtime.add_observer(counts.clone());
    let routing = Routing {
        strict: true,
        ..Routing::AUTO
    };
    with_runtime(&runtime, routing, || {
        manual_seed(2);
        let net = sequential![
            Linear::new(16, 64)?,
            GELU::default(),
            LayerNorm::new(64)?,
            Dropout::new(0.1)?,
            Linear::new(64, 8)?,
        ];
        let adam = AdamW::new(net.named_parameters(), AdamWOptions::default())?;
        let mut train = TrainStep::new(net, adam, |net, batch: &[Tensor]| {
            MSELoss::default().forward(&net.forward(&batch[0])?, &batch[1])
        })
        .with_checked_values()
        .clip_grad_norm(1.0, 2.0)?
        .schedule(CosineAnnealingLR::new(100usize))?;
        let mut all = Vec::new();
        for step in 0..steps {
            let numbers = |count: usize| (0..count).map(move |i| ((i + step) % 7) as f32 - 3.0);
            let x = Tensor::from_vec(numbers(32 * 16).collect::<Vec<f32>>(), [32, 16])?;
            let y = Tensor::from_vec(numbers(32 * 8).collect::<Vec<f32>>(), [32, 8])?;
            let loss = train.step(&[&x, &y])?;
            assert!(loss.item()?.is_finite() && loss.dtype() == DType::F32);
            all.push(counts.take());
        }
        println!(
            "{}: launched and replayed in each step: {all:?}",
            device.info().device
        );
        let names = counts.names.lock().unwrap_or_else(PoisonError::into_inner);
        println!(
            "the first step: {}",
            names[..all[0].0.min(names.len())].join(", ")
        );
        Ok(all)
    })
}

fn steps_are_replayed(devices: &Devices) {
    for device in devices {
        let all = train(device, 12).unwrap();
        for &(launched, replayed) in &all[6..] {
            assert_eq!((launched, replayed), (0, 1), "{all:?}");
        }
    }
}

fn main() -> ExitCode {
    let backend = |device| -> Arc<dyn Backend> { Arc::new(Gpu::new(device)) };
    let cuda = rustorch_cuda::devices();
    let cuda = cuda.map(|devices| devices.into_iter().map(backend).collect());
    Suite::new()
        .on(cuda, "RUSTORCH_TEST_CUDA", tests![steps_are_replayed])
        .run()
}
