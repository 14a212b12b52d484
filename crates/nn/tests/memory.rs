//! Steps of a small language model within less memory: logits by chunks, values computed again, values that wait on the host.

extern crate rustorch_nn as rustorch;

use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustorch::nn::{
    CrossEntropyLoss, Dropout, Forward, LayerNorm, Linear, Module, Sequential, SiLU,
};
use rustorch::optim::{AdamW, AdamWOptions};
use rustorch::train::{StepMemory, TrainStep};
use rustorch_cpu::Cpu;
use rustorch_faulty::{Fault, FaultKind, Faulty, When};
use rustorch_gpu::Gpu;
use rustorch_ir::{DType, OpKind};
use rustorch_runtime::{Backend, DeviceType, Routing, Runtime};
use rustorch_tensor::amp::autocast;
use rustorch_tensor::{RusTorchResult, Tensor, eval_all, manual_seed, runtime, with_runtime};
use rustorch_testing::{Suite, always, tests};

type Device = Arc<dyn Backend>;
type Train = TrainStep<Sequential, AdamWOptions>;

const STEPS: usize = 4;
const WIDTH: usize = 64;
const CLASSES: usize = 2048;

/// Held by who draws random numbers, whose generator is the process's.
fn generator() -> MutexGuard<'static, ()> {
    static GENERATOR: Mutex<()> = Mutex::new(());
    GENERATOR.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Result of some steps.
struct Trained {
    losses: Vec<f32>,
    weights: Vec<u32>,
    memory: StepMemory,
}

impl Trained {
    fn bits(&self) -> (Vec<u32>, &[u32]) {
        let losses = self.losses.iter().map(|loss| loss.to_bits());
        (losses.collect(), &self.weights)
    }

    /// Memory besides the working memory of steps.
    fn kept(&self) -> usize {
        self.memory.module + self.memory.states
    }

    /// A part of what steps work in, and all that they do not.
    fn part(&self, part: f64) -> usize {
        let working = self.memory.peak() - self.kept();
        self.kept() + (part * working as f64) as usize
    }
}

/// Layers of random numbers and norms, and a head of many classes; a quarter of the rows does not count.
fn network(classes: usize, has_bias: bool) -> RusTorchResult<Sequential> {
    let mut net = Sequential::new();
    for _ in 0..6 {
        net = net.append(Linear::new(WIDTH, WIDTH)?);
        net = net.append(LayerNorm::new(WIDTH)?).append(SiLU);
        net = net.append(Dropout::new(0.1)?);
    }
    let head = Linear::new(WIDTH, classes)?;
    Ok(net.append(match has_bias {
        true => head,
        false => head.without_bias(),
    }))
}

fn train(
    backends: &[Device],
    half: Option<DType>,
    with: impl Fn(Train) -> Train,
) -> RusTorchResult<Trained> {
    train_for(CLASSES, backends, half, with)
}

/// The same for a head of so many classes.
fn train_for(
    count: usize,
    backends: &[Device],
    half: Option<DType>,
    with: impl Fn(Train) -> Train,
) -> RusTorchResult<Trained> {
    let routing = Routing {
        device: backends[0].info().device,
        ..Routing::AUTO
    };
    let runtime = Runtime::new(backends.iter().cloned());
    with_runtime(&runtime, routing, || {
        manual_seed(1);
        let x = Tensor::from_fn([4, 64, WIDTH], |i| ((3 * i[1] + i[2]) % 11) as f32 / 11.0)?;
        let class = |i: &[usize]| match i[0] % 4 {
            0 => -100,
            _ => (37 * i[0] % count) as i64,
        };
        let classes = Tensor::from_fn([256], class)?;
        eval_all(&[&x, &classes])?;
        let net = network(count, half.is_none())?;
        let adam = AdamW::new(net.named_parameters(), AdamWOptions::default().lr(0.01))?;
        let loss = move |net: &Sequential, batch: &[Tensor]| {
            autocast(half, || {
                let logits = net.forward(&batch[0])?.flatten(0, 1)?;
                CrossEntropyLoss::default().forward(&logits, &batch[1])
            })
        };
        let train = TrainStep::new(net, adam, loss).clip_grad_norm(1.0, 2.0)?;
        let mut train = with(train);
        let batch = [&x, &classes];
        let memory = train.memory(&batch)?;
        let losses = (0..STEPS).map(|_| train.step(&batch)?.to_vec::<f32>());
        let losses = losses.collect::<RusTorchResult<Vec<_>>>()?.concat();
        let mut weights = Vec::new();
        for (_, tensor) in train.module().state_dict().iter() {
            weights.extend(tensor.to_vec::<f32>()?.into_iter().map(f32::to_bits));
        }
        Ok(Trained {
            losses,
            weights,
            memory,
        })
    })
}

fn plain(train: Train) -> Train {
    train
}

/// A budget has logits computed by chunks: less memory by so many eighths of them, and the same losses up to rounding.
fn by_chunks(device: &Device, eighths: usize) {
    let _alone = generator();
    for (half, tolerance) in [(None, 1e-5), (Some(DType::BF16), 2e-3)] {
        let devices = [device.clone()];
        let whole = train(&devices, half, plain).unwrap();
        let logits = 256 * CLASSES * half.map_or(4, |_| 2);
        let budget = whole.memory.peak() - logits * eighths / 8;
        let less = |train: Train| train.memory_budget(budget);
        let [one, two] = [(); 2].map(|()| train(&devices, half, less).unwrap());
        println!(
            "{}: {} in place of {}",
            device.info().device,
            one.memory,
            whole.memory
        );
        assert!(one.memory.peak() <= budget, "{} for {budget}", one.memory);
        assert_eq!(one.bits(), two.bits());
        for (own, expected) in one.losses.iter().zip(&whole.losses) {
            let apart = (own / expected - 1.0).abs();
            assert!(apart < tolerance, "{own}, not {expected}");
        }
    }
}

fn logits_are_computed_by_chunks_within_a_budget() {
    // Four chunks save three quarters.
    by_chunks(&(Arc::new(Cpu::new(1)) as Device), 5);
}

fn logits_are_computed_by_chunks_on_a_device(devices: &Vec<Device>) {
    // Without kept random numbers, the head's gradient soon takes as much.
    devices.iter().for_each(|device| by_chunks(device, 3));
}

/// The processor's memory is the host's.
fn nothing_of_the_processor_waits_on_the_host() {
    let _alone = generator();
    let cpu = [Arc::new(Cpu::new(1)) as Device];
    let whole = train(&cpu, None, plain).unwrap();
    let own = train(&cpu, None, Train::offload_activations).unwrap();
    assert_eq!(
        (own.memory.peak(), own.memory.offloaded()),
        (whole.memory.peak(), 0)
    );
    assert_eq!(own.bits(), whole.bits());
    let budget = whole.part(0.85);
    let less = |train: Train| train.memory_budget(budget);
    let expected = train(&cpu, None, less).unwrap();
    let own = train(&cpu, None, |train| less(train).offload_activations()).unwrap();
    assert_eq!(own.memory.peak(), expected.memory.peak());
    assert_eq!(own.bits(), expected.bits());
}

/// Offloaded values take none of the device's memory, and are the same when they come back.
fn values_wait_on_the_host(devices: &Vec<Device>) {
    let _alone = generator();
    for device in devices {
        let device = [device.clone()];
        for half in [None, Some(DType::BF16)] {
            let whole = train(&device, half, plain).unwrap();
            let own = train(&device, half, Train::offload_activations).unwrap();
            println!("{} in place of {}", own.memory, whole.memory);
            assert!(own.memory.offloaded() > 0 && whole.memory.offloaded() == 0);
            assert!(own.memory.peak() < whole.memory.peak());
            assert_eq!(own.bits(), whole.bits());
        }
        // Within a budget, values are offloaded if computing them again would save no memory.
        let train = |with: &dyn Fn(Train) -> Train| train_for(WIDTH, &device, None, with);
        let whole = train(&plain).unwrap();
        let least = |bytes| move |train: Train| train.memory_budget(bytes);
        let budget = (1..40)
            .map(|i| whole.part(f64::from(i) / 40.0))
            .find(|&bytes| train(&least(bytes)).is_ok())
            .unwrap();
        let expected = train(&least(budget)).unwrap();
        let less = budget - (budget - whole.kept()) / 20;
        let own = train(&|train| least(less)(train).offload_activations());
        let own = own.unwrap();
        println!("{} in place of {}", own.memory, expected.memory);
        assert!(own.memory.offloaded() > 0 && own.memory.peak() <= less);
    }
}

/// If the host has too little memory, values stay on the device.
fn a_host_that_is_full_takes_nothing(devices: &Vec<Device>) {
    let _alone = generator();
    for device in devices {
        let devices: [Device; 2] = [device.clone(), Arc::new(Cpu::new(1))];
        let expected = train(&devices, None, plain).unwrap();
        let limited = |train: Train| {
            let memory = runtime().memory();
            let mut pools = memory.pools().into_iter();
            let host = pools.find(|pool| pool.device == DeviceType::Cpu).unwrap();
            memory.set_limit(host.device, host.in_use + (256 << 10));
            train.offload_activations()
        };
        let own = train(&devices, None, limited).unwrap();
        let free = train(&devices, None, Train::offload_activations).unwrap();
        println!(
            "{}, and {} where the host has room",
            own.memory, free.memory
        );
        assert!(own.memory.offloaded() < free.memory.offloaded());
        assert!(own.memory.offloaded() <= 256 << 10);
        assert!(own.memory.peak() <= expected.memory.peak());
        assert_eq!(own.bits(), expected.bits());
    }
}

/// After a failed copy, values stay where they are, or the work falls back to the next device.
fn copies_that_fail_cost_no_loss(devices: &Vec<Device>) {
    let _alone = generator();
    for device in devices {
        let expected = train(
            std::slice::from_ref(device),
            None,
            Train::offload_activations,
        )
        .unwrap();
        for op in [OpKind::Offload, OpKind::Reload] {
            for kind in FaultKind::FAILURES {
                let fault = Fault {
                    device: device.info().device,
                    op: Some(op),
                    when: When::Nth(3),
                    kind,
                };
                let faulty = Arc::new(Faulty::new(device.clone(), [fault]));
                let devices: [Device; 2] = [faulty, Arc::new(Cpu::new(1))];
                let what = format!("{} at {}", kind.name(), op.name());
                match train(&devices, None, Train::offload_activations) {
                    // The weights were on the device alone.
                    Err(error) if error.is_data_lost() => {
                        let loses = [FaultKind::Lost, FaultKind::Timeout, FaultKind::Sync];
                        assert!(loses.contains(&kind), "{what}: {error}");
                    }
                    Err(error) => panic!("{what}: {error}"),
                    Ok(own) => {
                        if matches!(kind, FaultKind::Unsupported | FaultKind::Compile) {
                            assert_eq!(own.bits(), expected.bits(), "{what}");
                        }
                        for (own, expected) in own.losses.iter().zip(&expected.losses) {
                            let apart = (own / expected - 1.0).abs();
                            assert!(apart < 1e-5, "{what}: {own}, not {expected}");
                        }
                    }
                }
            }
        }
    }
}

fn main() -> ExitCode {
    let backend = |device| -> Device { Arc::new(Gpu::new(device)) };
    let opencl = rustorch_opencl::devices();
    let opencl = opencl.map(|devices| devices.into_iter().map(backend).collect());
    Suite::new()
        .always(always![
            logits_are_computed_by_chunks_within_a_budget,
            nothing_of_the_processor_waits_on_the_host,
        ])
        .on(
            opencl,
            "RUSTORCH_TEST_OPENCL",
            tests![
                logits_are_computed_by_chunks_on_a_device,
                values_wait_on_the_host,
                a_host_that_is_full_takes_nothing,
                copies_that_fail_cost_no_loss,
            ],
        )
        .run()
}
