//! Training that goes on where it was saved: after a new start, and by itself after the loss of a device.

extern crate rustorch_nn as rustorch;

use std::sync::{Arc, Mutex, PoisonError};
use std::{env, fs};

use rustorch::amp::GradScaler;
use rustorch::nn::{Dropout, Forward, Linear, MSELoss, Module, Sequential, Tanh, sequential};
use rustorch::optim::lr_scheduler::ExponentialLR;
use rustorch::optim::{AdamW, AdamWOptions, SGD, SGDOptions};
use rustorch::train::{CheckpointError, Checkpoints, Progress, Resumed, TrainStep};
use rustorch_cpu::Cpu;
use rustorch_faulty::{Fault, FaultKind, Faulty, When};
use rustorch_ir::DType;
use rustorch_reference::Reference;
use rustorch_runtime::{Backend, Routing, Runtime};
use rustorch_tensor::amp::autocast;
use rustorch_tensor::{Generator, RusTorchResult, Tensor, manual_seed, with_runtime};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Held by who draws random numbers, whose generator is the process's.
static GENERATOR: Mutex<()> = Mutex::new(());

const STEPS: u64 = 6;

fn new(hidden: usize) -> RusTorchResult<TrainStep<Sequential, AdamWOptions>> {
    manual_seed(0);
    let net = sequential![
        Linear::new(3, hidden)?,
        Tanh,
        Dropout::new(0.2)?,
        Linear::new(hidden, 1)?
    ];
    let adam = AdamW::new(net.named_parameters(), AdamWOptions::default().lr(0.01))?;
    let train = TrainStep::new(net, adam, |net: &Sequential, batch| {
        MSELoss::default().forward(&net.forward(&batch[0])?, &batch[1])
    });
    train.accumulate(2)?.schedule(ExponentialLR::new(0.9))
}

/// The batch of a step, from numbers that the host has.
fn batch(step: u64) -> RusTorchResult<Vec<Tensor>> {
    let x = Generator::new(step).randn([4, 3], DType::F32)?;
    let y = x.sum(1, true)?;
    let copy = |x: &Tensor| Tensor::from_vec(x.to_vec::<f32>()?, x.shape());
    Ok(vec![copy(&x)?, copy(&y)?])
}

#[derive(Default)]
struct Told {
    losses: Vec<f64>,
    resumed: Vec<Resumed>,
}

fn fit(
    train: &mut TrainStep<Sequential, AdamWOptions>,
    steps: u64,
    checkpoints: &Checkpoints,
    every: u64,
) -> Result<Told, CheckpointError> {
    let mut told = Told::default();
    train.fit(steps, (checkpoints, every), batch, |progress| {
        match progress {
            Progress::Step { step, loss, .. } => {
                let loss = loss.item()?;
                told.losses.truncate(step as usize);
                told.losses.push(loss);
            }
            Progress::Resumed(resumed) => told.resumed.push(resumed.clone()),
        }
        Ok(())
    })?;
    Ok(told)
}

#[test]
fn a_new_start_goes_on_where_it_was_saved() -> Outcome<()> {
    let _alone = GENERATOR.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir()?;
    let expected = {
        let checkpoints = Checkpoints::new(folder.path().join("whole"), 2)?;
        fit(&mut new(4)?, STEPS, &checkpoints, 1)?.losses
    };
    // In the middle of an accumulation, and behind it.
    for first in [3, 4] {
        let checkpoints = Checkpoints::new(folder.path().join(first.to_string()), 2)?;
        let mut losses = fit(&mut new(4)?, first, &checkpoints, 1)?.losses;
        let steps = || Ok::<_, CheckpointError>(checkpoints.files()?.into_iter().map(|(n, _)| n));
        assert_eq!(steps()?.collect::<Vec<_>>(), [first - 1, first]);
        let mut rest = Vec::new();
        let mut train = new(4)?;
        manual_seed(99);
        train.fit(STEPS, (&checkpoints, 100), batch, |progress| {
            if let Progress::Step { loss, .. } = progress {
                rest.push(loss.item()?);
            }
            Ok(())
        })?;
        losses.extend(rest);
        assert_eq!(losses, expected);
        assert_eq!(train.steps(), STEPS);
    }
    Ok(())
}

/// A callback sees the module as the step left it, and the rates that the step was made by.
#[test]
fn module_and_rates_are_there_after_each_step() -> Outcome<()> {
    let _alone = GENERATOR.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir()?;
    let checkpoints = Checkpoints::new(folder.path(), 1)?;
    let mut train = new(4)?;
    let weight = |net: &Sequential| net.parameters()[0].to_vec::<f32>();
    let (mut last, mut seen, mut changed) = (weight(train.module())?, Vec::new(), Vec::new());
    train.fit(6, (&checkpoints, 100), batch, |progress| {
        if let Progress::Step { module, rates, .. } = progress {
            seen.push(rates.to_vec());
            let now = weight(module)?;
            changed.push(now != last);
            last = now;
        }
        Ok(())
    })?;
    // Two batches of an update, behind which the rate shrinks.
    let expected = [0.01, 0.01, 0.009, 0.009, 0.0081, 0.0081];
    let is_close = |(rates, expected): (&Vec<f64>, f64)| (rates[0] - expected).abs() < 1e-12;
    assert!(seen.iter().zip(expected).all(is_close), "{seen:?}");
    assert!(seen.iter().all(|rates| rates.len() == 1));
    assert_eq!(changed, [false, true, false, true, false, true]);
    assert_eq!(last, weight(train.module())?);
    Ok(())
}

/// A scale that shrinks at first and then grows is part of what training goes on from.
#[test]
fn a_scaler_goes_on_where_it_was_saved() -> Outcome<()> {
    let _alone = GENERATOR.lock().unwrap_or_else(PoisonError::into_inner);
    let new = || {
        let scaler = GradScaler::new()?.init_scale(1e9)?.factors(2.0, 2, 0.25)?;
        manual_seed(0);
        let net = sequential![Linear::new(3, 1)?];
        let sgd = SGD::new(net.named_parameters(), SGDOptions::default().lr(0.01))?;
        let train = TrainStep::new(net, sgd, |net: &Sequential, batch| {
            autocast(DType::F16, || {
                MSELoss::default().forward(&net.forward(&batch[0])?, &batch[1])
            })
        });
        RusTorchResult::Ok(train.grad_scaler(scaler))
    };
    let mut train = new()?;
    let step = |train: &mut TrainStep<_, _>| -> RusTorchResult<(f64, f64, u64)> {
        let tensors = batch(train.steps())?;
        let loss = train.step(&tensors.iter().collect::<Vec<_>>())?.item()?;
        let scaler = train.scaler().expect("one");
        Ok((loss, scaler.get_scale()?, scaler.skipped()?))
    };
    let mut expected = Vec::new();
    let folder = tempfile::tempdir()?;
    let checkpoints = Checkpoints::new(folder.path(), 1)?;
    for i in 0..20 {
        if i == 11 {
            checkpoints.save(&train)?;
        }
        expected.push(step(&mut train)?);
    }
    assert!(expected[19].2 > 0 && expected[19].1 < 1e9, "{expected:?}");
    let mut again = new()?;
    assert_eq!(checkpoints.load_latest(&mut again)?, Some(11));
    let rest: Vec<_> = (11..20)
        .map(|_| step(&mut again))
        .collect::<RusTorchResult<_>>()?;
    assert_eq!(rest, expected[11..]);

    let mut state = train.state_dict()?;
    state.insert("scaler.scale", Tensor::scalar(0.0, DType::F32)?);
    let error = again.load_state_dict(&state).unwrap_err().to_string();
    assert!(error.contains("a scale above 0"), "{error}");
    state.insert("scaler.scale", Tensor::scalar(1.0, DType::F64)?);
    let error = again.load_state_dict(&state).unwrap_err().to_string();
    assert!(error.contains("the state of a scaler, scale"), "{error}");
    Ok(())
}

#[test]
fn lost_steps_are_made_again() -> Outcome<()> {
    let _alone = GENERATOR.lock().unwrap_or_else(PoisonError::into_inner);
    let inner: Arc<dyn Backend> = Arc::new(Reference::new());
    let train = |nth: u64, kind: FaultKind| -> Outcome<(Told, u64)> {
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
        let folder = tempfile::tempdir()?;
        let checkpoints = Checkpoints::new(folder.path(), 2)?;
        let told = with_runtime(&Runtime::new(backends), routing, || {
            fit(&mut new(4)?, STEPS, &checkpoints, 2)
        });
        Ok((told?, first.launches()))
    };
    let (expected, launches) = train(u64::MAX, FaultKind::Lost)?;
    assert_eq!(expected.resumed, []);
    let between = match env::var_os("RUSTORCH_TEST_FULL").is_some() {
        true => 1,
        false => 37,
    };
    let mut resumed = 0;
    for kind in FaultKind::FAILURES {
        for nth in (1..=launches).step_by(between) {
            let what = format!("{} at launch {nth} of {launches}", kind.name());
            let (told, _) = train(nth, kind).map_err(|e| format!("{what}: {e}"))?;
            assert_eq!(told.losses.len(), expected.losses.len(), "{what}");
            for (got, expected) in told.losses.iter().zip(&expected.losses) {
                assert!(
                    (got - expected).abs() < 1e-5,
                    "{what}: {got}, not {expected}"
                );
            }
            for lost in &told.resumed {
                assert!(
                    lost.from <= lost.lost && lost.to_string().contains("was lost"),
                    "{what}"
                );
            }
            resumed += told.resumed.len();
        }
    }
    assert!(resumed > 0, "a device was lost with parameters");
    Ok(())
}

#[test]
fn other_states_are_refused_and_change_nothing() -> Outcome<()> {
    let _alone = GENERATOR.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir()?;
    let checkpoints = Checkpoints::new(folder.path(), 3)?;
    fit(&mut new(4)?, 2, &checkpoints, 2)?;
    let refused =
        |train: &mut TrainStep<Sequential, AdamWOptions>, expected: &str| -> Outcome<()> {
            let before = train.module().parameters()[0].to_vec::<f32>()?;
            let error = checkpoints.load_latest(train).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
            assert_eq!(train.module().parameters()[0].to_vec::<f32>()?, before);
            assert_eq!(train.steps(), 0);
            Ok(())
        };
    // The state of another model.
    refused(&mut new(5)?, "for a parameter [5, 3]")?;
    let net = Linear::new(3, 1)?;
    let sgd = SGD::new(net.named_parameters(), SGDOptions::default())?;
    let mut other = TrainStep::new(net, sgd, |net, x| net.forward(&x[0])?.mean_all());
    let error = checkpoints.load_latest(&mut other).unwrap_err().to_string();
    assert!(error.contains("no schedule"), "{error}");
    // The state of a newer version.
    let (_, path) = checkpoints.files()?.pop().ok_or("a file")?;
    let mut state = rustorch_files::load(&path)?;
    let mut numbers = state.get("train")?.to_vec::<i64>()?;
    numbers[0] = 2;
    let count = numbers.len();
    state.insert("train", Tensor::from_vec(numbers, count)?);
    let newer = folder.path().join("step-00000003.safetensors");
    rustorch_files::save(&newer, &state)?;
    refused(&mut new(4)?, "version 2 (a newer rustorch reads it)")?;
    // Tensors of something else, and a file that was cut short.
    let weights = new(4)?.module().state_dict();
    rustorch_files::save(&newer, &weights)?;
    refused(&mut new(4)?, "the state of something else")?;
    let bytes = fs::read(&path)?;
    fs::write(&newer, &bytes[..bytes.len() - 8])?;
    refused(&mut new(4)?, "the file is damaged")?;
    Ok(())
}
