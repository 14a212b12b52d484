//! Training on devices that fail: each kind of fault at each launch of three steps. The losses are
//! those of a device that does not fail. Or an error reports the loss of a parameter, and training goes
//! on from a saved state.

extern crate rustorch_nn as rustorch;

use std::env;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use rustorch::nn::{
    Dropout, Embedding, Forward, LayerNorm, Linear, MSELoss, Module, Sequential, Tanh, sequential,
};
use rustorch::optim::{AdamW, AdamWOptions};
use rustorch_cpu::Cpu;
use rustorch_faulty::{Fault, FaultKind, Faulty, When};
use rustorch_files::Tensors;
use rustorch_gpu::Gpu;
use rustorch_ir::DType;
use rustorch_reference::Reference;
use rustorch_runtime::{Backend, Routing, Runtime};
use rustorch_tensor::{Element, RusTorchError, RusTorchResult, Tensor, manual_seed, with_runtime};
use rustorch_testing::{Suite, always, tests};

type Devices = Vec<Arc<dyn Backend>>;

const STEPS: u64 = 3;

/// Held by who draws random numbers, whose generator is the process's.
static GENERATOR: Mutex<()> = Mutex::new(());

/// Result of the training.
struct Trained {
    losses: Vec<f64>,
    /// How often it went on from what was saved.
    resumed: usize,
    launches: u64,
}

/// A copy on the host, which no device can lose.
fn copy<T: Element>(tensor: &Tensor) -> RusTorchResult<Tensor> {
    Tensor::from_vec(tensor.to_vec::<T>()?, tensor.shape())
}

fn saved(state: &Tensors) -> RusTorchResult<Tensors> {
    let mut copies = Tensors::new();
    for (name, tensor) in state.iter() {
        let copy = match tensor.dtype() {
            DType::F32 => copy::<f32>(tensor)?,
            // Numbers of steps.
            _ => copy::<f64>(tensor)?,
        };
        copies.insert(name, copy);
    }
    Ok(copies)
}

fn network() -> RusTorchResult<Sequential> {
    Ok(sequential![
        Linear::new(3, 8)?,
        Tanh,
        LayerNorm::new(8)?,
        Dropout::new(0.2)?,
        Linear::new(8, 1)?,
    ])
}

fn step(net: &Sequential, adam: &mut AdamW, [x, y]: [&Tensor; 2]) -> RusTorchResult<f64> {
    adam.zero_grad();
    let loss = MSELoss::default().forward(&net.forward(x)?, y)?;
    loss.backward()?;
    adam.step()?;
    loss.item()
}

fn train(inner: &Arc<dyn Backend>, nth: u64, kind: FaultKind) -> RusTorchResult<Trained> {
    let fault = Fault {
        device: inner.info().device,
        op: None,
        when: When::Nth(nth),
        kind,
    };
    let first = Arc::new(Faulty::new(inner.clone(), [fault]));
    let backends: [Arc<dyn Backend>; 2] = [first.clone(), Arc::new(Cpu::new(1))];
    let routing = Routing {
        device: inner.info().device,
        ..Routing::AUTO
    };
    let runtime = Runtime::new(backends);
    with_runtime(&runtime, routing, || {
        manual_seed(0);
        let mut net = network()?;
        let [x, y] = [[16, 3], [16, 1]].map(|shape| Tensor::randn(shape, DType::F32));
        let (x, y) = (copy::<f32>(&x?)?, copy::<f32>(&y?)?);
        let mut adam = AdamW::new(net.named_parameters(), AdamWOptions::default().lr(0.01))?;
        let (mut losses, mut resumed) = (Vec::new(), 0);
        let mut checkpoint = (saved(&net.state_dict())?, saved(&adam.state_dict()?)?);
        while (losses.len() as u64) < STEPS {
            manual_seed(losses.len() as u64 + 1);
            let stepped = step(&net, &mut adam, [&x, &y]).and_then(|loss| {
                Ok((
                    loss,
                    (saved(&net.state_dict())?, saved(&adam.state_dict()?)?),
                ))
            });
            match stepped {
                Ok((loss, saved)) => {
                    losses.push(loss);
                    checkpoint = saved;
                }
                Err(RusTorchError::UpdateLost { .. } | RusTorchError::DataLost { .. }) => {
                    resumed += 1;
                    assert!(resumed < 3, "it cannot go on");
                    net.load_state_dict(&checkpoint.0, true)?;
                    adam.load_state_dict(&checkpoint.1)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Trained {
            losses,
            resumed,
            launches: first.launches(),
        })
    })
}

/// Each kind of fault at each launch, or at some.
fn every_fault(inner: &Arc<dyn Backend>) {
    let _alone = GENERATOR.lock().unwrap_or_else(PoisonError::into_inner);
    let expected = train(inner, u64::MAX, FaultKind::Lost).unwrap();
    assert_eq!(expected.resumed, 0);
    assert!(expected.losses[2] < expected.losses[0]);
    let between = if env::var_os("RUSTORCH_TEST_FULL").is_some() {
        1
    } else {
        29
    };
    let mut resumed = 0;
    for kind in FaultKind::FAILURES {
        for nth in (1..=expected.launches).step_by(between) {
            let what = format!("{} at launch {nth} of {}", kind.name(), expected.launches);
            let trained = train(inner, nth, kind).unwrap_or_else(|e| panic!("{what}: {e}"));
            for (got, expected) in trained.losses.iter().zip(&expected.losses) {
                assert!(
                    (got - expected).abs() < 1e-5,
                    "{what}: {got}, not {expected}"
                );
            }
            resumed += trained.resumed;
        }
    }
    println!(
        "{}: {resumed} went on from what was saved",
        inner.info().device
    );
}

/// A step with an index outside of its table is refused before anything is written over. Training then goes on as if
/// there had been no such step.
fn a_mistake(inner: &Arc<dyn Backend>) {
    let _alone = GENERATOR.lock().unwrap_or_else(PoisonError::into_inner);
    let routing = Routing {
        device: inner.info().device,
        ..Routing::AUTO
    };
    let runtime = Runtime::new([inner.clone(), Arc::new(Cpu::new(1)) as Arc<dyn Backend>]);
    with_runtime(&runtime, routing, || {
        let run = |batches: &[i64], profiled: bool| {
            manual_seed(0);
            runtime.set_profiling(profiled);
            let net = sequential![Embedding::new(5, 3)?, Tanh, Linear::new(3, 1)?];
            let mut adam = AdamW::new(net.named_parameters(), AdamWOptions::default().lr(0.01))?;
            let y = Tensor::from_vec(vec![1.0f32, 0.0], [2, 1])?;
            for &second in batches {
                let x = Tensor::from_vec(vec![1i64, second], [2])?;
                let before = saved(&net.state_dict())?;
                let stepped = step(&net, &mut adam, [&x, &y]);
                if second < 5 {
                    stepped?;
                    continue;
                }
                let error = stepped.expect_err("there is no such row");
                let text = error.to_string();
                assert!(!error.is_device_error(), "{text}");
                // By the call of the forward pass, or of the backward pass, which has the same index.
                assert!(text.contains("failing_over.rs"), "{text}");
                assert!(text.contains("dimension 0 of f32[5, 3]"), "{text}");
                for ((name, before), (_, now)) in before.iter().zip(net.state_dict().iter()) {
                    assert_eq!(before.to_vec::<f32>()?, now.to_vec::<f32>()?, "{name}");
                }
            }
            let values = net.parameters().into_iter().map(|p| p.to_vec::<f32>());
            values.collect::<RusTorchResult<Vec<_>>>()
        };
        for profiled in [false, true] {
            assert_eq!(
                run(&[2, 7, 3, 7, 7, 4], profiled)?,
                run(&[2, 3, 4], profiled)?
            );
        }
        runtime.set_profiling(false);
        Ok::<_, RusTorchError>(())
    })
    .unwrap();
}

fn a_mistake_leaves_parameters_as_they_were() {
    a_mistake(&(Arc::new(Reference::new()) as Arc<dyn Backend>));
}

fn a_mistake_on_an_opencl_device_leaves_parameters_as_they_were(opencl: &Devices) {
    opencl.iter().for_each(a_mistake);
}

fn every_fault_of_the_processor_at_every_launch() {
    // The reference backend stands for another device.
    let device: Arc<dyn Backend> = Arc::new(Reference::new());
    every_fault(&device);
}

fn every_fault_of_an_opencl_device_at_every_launch(opencl: &Devices) {
    opencl.iter().for_each(every_fault);
}

fn main() -> ExitCode {
    let backend = |device| -> Arc<dyn Backend> { Arc::new(Gpu::new(device)) };
    let opencl = rustorch_opencl::devices();
    let opencl = opencl.map(|devices| devices.into_iter().map(backend).collect());
    Suite::new()
        .always(always![
            every_fault_of_the_processor_at_every_launch,
            a_mistake_leaves_parameters_as_they_were
        ])
        .on(
            opencl,
            "RUSTORCH_TEST_OPENCL",
            tests![
                every_fault_of_an_opencl_device_at_every_launch,
                a_mistake_on_an_opencl_device_leaves_parameters_as_they_were
            ],
        )
        .run()
}
