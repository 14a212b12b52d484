//! Learning rates of schedules, as PyTorch's `lr_scheduler` has them: `goldens/lr_scheduler.json` is from
//! `scripts/module-goldens.py --seed 0`.

use rustorch_nn::nn::parameter;
use rustorch_nn::optim::lr_scheduler::*;
use rustorch_nn::optim::{Adam, AdamOptions, LearningRates, SGD, SGDOptions};
use rustorch_tensor::{RusTorchResult, tensor};
use serde::Deserialize;
use serde_json::{Map, Value};

#[derive(Deserialize)]
struct Golden {
    name: String,
    kwargs: Map<String, Value>,
    /// Learning rates of both groups, at first and after each step.
    lrs: Vec<[f64; 2]>,
    momenta: Vec<[f64; 2]>,
    #[serde(default)]
    metrics: Vec<f64>,
}

fn sgd() -> RusTorchResult<SGD> {
    let options = SGDOptions::default().lr(0.1).momentum(0.9);
    let mut sgd = SGD::new([parameter(tensor![0.0,])?], options)?;
    sgd.add_param_group([parameter(tensor![0.0,])?], options.lr(0.02))?;
    Ok(sgd)
}

impl Golden {
    fn float(&self, name: &str, default: f64) -> f64 {
        self.kwargs
            .get(name)
            .map_or(default, |value| value.as_f64().unwrap())
    }

    fn int(&self, name: &str) -> usize {
        self.kwargs[name].as_u64().unwrap() as usize
    }

    fn has(&self, name: &str, text: &str) -> bool {
        self.kwargs.get(name).is_some_and(|value| value == text)
    }

    fn schedule(&self) -> RusTorchResult<Box<dyn Schedule>> {
        Ok(match self.name.as_str() {
            "LambdaLR" => Box::new(LambdaLR(|epoch: usize| 0.9f64.powi(epoch as i32))),
            "MultiplicativeLR" => {
                Box::new(MultiplicativeLR(|epoch| if epoch < 5 { 0.95 } else { 0.8 }))
            }
            "StepLR" => {
                Box::new(StepLR::new(self.int("step_size")).gamma(self.float("gamma", 0.1)))
            }
            "MultiStepLR" => {
                Box::new(MultiStepLR::new([2, 5, 5, 9]).gamma(self.float("gamma", 0.1)))
            }
            "ConstantLR" => {
                let factor = self.float("factor", 1.0);
                Box::new(
                    ConstantLR::new()
                        .factor(factor)
                        .total_iters(self.int("total_iters")),
                )
            }
            "LinearLR" => {
                let linear = LinearLR::new().start_factor(self.float("start_factor", 1.0));
                let linear = linear.end_factor(self.float("end_factor", 1.0));
                Box::new(linear.total_iters(self.int("total_iters")))
            }
            "ExponentialLR" => Box::new(ExponentialLR::new(self.float("gamma", 1.0))),
            "PolynomialLR" => {
                let power = self.float("power", 1.0);
                Box::new(
                    PolynomialLR::new()
                        .total_iters(self.int("total_iters"))
                        .power(power),
                )
            }
            "CosineAnnealingLR" => {
                let schedule = CosineAnnealingLR::new(self.int("T_max"));
                Box::new(schedule.eta_min(self.float("eta_min", 0.0)))
            }
            "CosineAnnealingWarmRestarts" => {
                let schedule = CosineAnnealingWarmRestarts::new(self.int("T_0"));
                Box::new(
                    schedule
                        .t_mult(self.int("T_mult"))
                        .eta_min(self.float("eta_min", 0.0)),
                )
            }
            "CyclicLR" => {
                let mut cyclic =
                    CyclicLR::new(self.float("base_lr", 0.0), self.float("max_lr", 0.0));
                cyclic.step_size_up = self.int("step_size_up");
                cyclic.step_size_down = self
                    .kwargs
                    .get("step_size_down")
                    .map(|n| n.as_u64().unwrap() as usize);
                cyclic.gamma = self.float("gamma", 1.0);
                if self.has("mode", "triangular2") {
                    cyclic.mode = CyclicMode::Triangular2;
                }
                if self.has("mode", "exp_range") {
                    (cyclic.mode, cyclic.momentum) = (CyclicMode::ExpRange, None);
                }
                Box::new(cyclic)
            }
            "OneCycleLR" => {
                let mut cycle = OneCycleLR::new(self.float("max_lr", 0.0), self.int("total_steps"));
                cycle.pct_start = self.float("pct_start", 0.3);
                cycle.div_factor = self.float("div_factor", 25.0);
                if self.has("anneal_strategy", "linear") {
                    (cycle.anneal_strategy, cycle.three_phase) = (AnnealStrategy::Linear, true);
                }
                Box::new(cycle)
            }
            "SequentialLR" => {
                let parts: Vec<Box<dyn Schedule>> = vec![
                    Box::new(ConstantLR::new().factor(0.1).total_iters(3usize)),
                    Box::new(ExponentialLR::new(0.9)),
                    Box::new(StepLR::new(2).gamma(0.5)),
                ];
                Box::new(SequentialLR::new(parts, [3, 7])?)
            }
            "ChainedScheduler" => Box::new(ChainedScheduler(vec![
                Box::new(ConstantLR::new().factor(0.1).total_iters(3usize)),
                Box::new(ExponentialLR::new(0.9)),
            ])),
            other => panic!("a schedule {other}"),
        })
    }
}

fn check(golden: &Golden, step: usize, sgd: &SGD) {
    for (option, expected) in [("lr", &golden.lrs), ("momentum", &golden.momenta)] {
        for group in 0..2 {
            let (got, expected) = (sgd.option(group, option).unwrap()[0], expected[step][group]);
            let near = (got - expected).abs() <= 1e-12 + 1e-9 * expected.abs();
            assert!(
                near,
                "{} {option} of group {group}, step {step}: {got}, not {expected}",
                golden.name
            );
        }
    }
}

#[test]
fn learning_rates_are_pytorchs() -> RusTorchResult<()> {
    let goldens = include_str!("goldens/lr_scheduler.json");
    let goldens: Vec<Golden> = serde_json::from_str(goldens).unwrap();
    assert_eq!(goldens.len(), 19);
    for golden in &goldens {
        let mut sgd = sgd()?;
        if golden.name == "ReduceLROnPlateau" {
            let mut plateau = ReduceLROnPlateau::new()
                .is_max(golden.has("mode", "max"))
                .is_absolute(golden.has("threshold_mode", "abs"))
                .factor(golden.float("factor", 0.1))
                .patience(golden.int("patience"))
                .threshold(golden.float("threshold", 1e-4))
                .cooldown(golden.float("cooldown", 0.0) as usize)
                .min_lr(golden.float("min_lr", 0.0));
            for (step, &metric) in golden.metrics.iter().enumerate() {
                check(golden, step, &sgd);
                plateau.step(&mut sgd, metric)?;
            }
            check(golden, golden.metrics.len(), &sgd);
            continue;
        }
        let mut scheduler = LrScheduler::new(&mut sgd, golden.schedule()?)?;
        for step in 0..golden.lrs.len() {
            check(golden, step, &sgd);
            if step + 1 < golden.lrs.len() {
                scheduler.step(&mut sgd)?;
            }
        }
    }
    Ok(())
}

/// A row of `goldens/nested_schedules.json`, which `scripts/schedule-goldens.py` writes.
#[derive(Deserialize)]
struct Nested {
    /// Schedules of one optimiser: names, or a kind, schedules and milestones.
    trees: Vec<Value>,
    adam: bool,
    /// Figures for a schedule that goes by them, if there is one, too.
    #[serde(default)]
    metrics: Vec<f64>,
    lrs: Vec<f64>,
    #[serde(default)]
    momenta: Vec<f64>,
}

/// The schedules of `scripts/schedule-goldens.py`.
fn tree(value: &Value) -> RusTorchResult<Box<dyn Schedule>> {
    if let Some([kind, parts, milestones]) = value.as_array().map(Vec::as_slice) {
        let parts = parts.as_array().unwrap().iter().map(tree);
        let parts = parts.collect::<RusTorchResult<Vec<_>>>()?;
        let milestones = milestones.as_array().unwrap().iter();
        let milestones: Vec<usize> = milestones.map(|n| n.as_u64().unwrap() as usize).collect();
        return Ok(match kind == "sequential" {
            true => Box::new(SequentialLR::new(parts, milestones)?),
            false => Box::new(ChainedScheduler(parts)),
        });
    }
    Ok(match value.as_str().unwrap() {
        "step" => Box::new(StepLR::new(2usize).gamma(0.5)),
        "multistep" => Box::new(MultiStepLR::new([0, 1, 4]).gamma(0.5)),
        "constant" => Box::new(ConstantLR::new().factor(0.25).total_iters(2usize)),
        "linear" => {
            let linear = LinearLR::new().start_factor(0.1).end_factor(0.8);
            Box::new(linear.total_iters(4usize))
        }
        "exponential" => Box::new(ExponentialLR::new(0.9)),
        "polynomial" => Box::new(PolynomialLR::new().total_iters(7usize).power(1.5)),
        "cosine" => Box::new(CosineAnnealingLR::new(4usize).eta_min(0.01)),
        "restarts" => {
            let restarts = CosineAnnealingWarmRestarts::new(2usize).t_mult(2usize);
            Box::new(restarts.eta_min(0.01))
        }
        "swa" => Box::new(SWALR::new(0.05).anneal_epochs(3usize)),
        "cyclic" => Box::new(CyclicLR::new(0.1, 0.5).step_size_up(2usize)),
        "onecycle" => Box::new(OneCycleLR::new(0.6, 12)),
        "onecycle2" => Box::new(OneCycleLR::new(2.0, 16).pct_start(0.5)),
        "lambda" => Box::new(LambdaLR(|epoch| 1.0 / (1.0 + epoch as f64))),
        "multiplicative" => Box::new(MultiplicativeLR(|epoch| 0.9 - 0.1 * epoch as f64)),
        other => panic!("a schedule {other}"),
    })
}

impl Nested {
    fn check(&self, step: usize, optimizer: &impl LearningRates) {
        let momentum = match self.adam {
            true => optimizer.option(0, "betas"),
            false => optimizer.option(0, "momentum"),
        };
        let got = [optimizer.option(0, "lr").unwrap()[0], momentum.unwrap()[0]];
        let expected = [self.lrs[step], *self.momenta.get(step).unwrap_or(&0.7)];
        for (got, expected) in got.into_iter().zip(expected) {
            let near = (got - expected).abs() <= 1e-9 + 1e-8 * expected.abs();
            let trees = Value::from(self.trees.clone());
            assert!(near, "{trees}, step {step}: {got}, not {expected}");
        }
    }

    fn run(&self, optimizer: &mut impl LearningRates, reloads: bool) -> RusTorchResult<()> {
        let schedule = |value| LrScheduler::new(optimizer, tree(value)?);
        let mut schedulers =
            (self.trees.iter().map(schedule)).collect::<RusTorchResult<Vec<_>>>()?;
        let mut plateau = ReduceLROnPlateau::new().factor(0.5).patience(1usize);
        plateau.cooldown = 1;
        self.check(0, optimizer);
        for step in 1..self.lrs.len() {
            for (scheduler, value) in schedulers.iter_mut().zip(&self.trees) {
                if step == 3 && reloads {
                    // A schedule with a loaded state goes on like one without.
                    let mut other = self.fresh()?;
                    let mut loaded = LrScheduler::new(&mut other, tree(value)?)?;
                    loaded.load_state_dict(&scheduler.state_dict()?)?;
                    *scheduler = loaded;
                }
                scheduler.step(optimizer)?;
            }
            if let Some(&metric) = self.metrics.get(step - 1) {
                plateau.step(optimizer, metric)?;
                assert_eq!(plateau.get_last_lr(), optimizer.option(0, "lr").unwrap());
                assert_eq!(plateau.last_epoch(), step);
            }
            self.check(step, optimizer);
        }
        Ok(())
    }

    fn fresh(&self) -> RusTorchResult<SGD> {
        let options = SGDOptions::default().lr(1.0).momentum(0.7);
        SGD::new([parameter(tensor![0.0,])?], options)
    }
}

#[test]
fn schedules_in_schedules_are_pytorchs() -> RusTorchResult<()> {
    let goldens = include_str!("goldens/nested_schedules.json");
    let goldens: Vec<Nested> = serde_json::from_str(goldens).unwrap();
    assert!(goldens.len() > 700);
    for (i, golden) in goldens.iter().enumerate() {
        let reloads = i % 10 == 0 || i + 20 > goldens.len();
        match golden.adam {
            true => {
                let options = AdamOptions::default().lr(1.0).betas([0.7, 0.99]);
                golden.run(
                    &mut Adam::new([parameter(tensor![0.0,])?], options)?,
                    reloads,
                )?;
            }
            false => golden.run(&mut golden.fresh()?, reloads)?,
        }
    }
    Ok(())
}

#[test]
fn schedules_of_schedules_begin_again_behind_others() -> RusTorchResult<()> {
    // PyTorch has no such schedules: it refuses the step to the second one.
    let constant = || -> Box<dyn Schedule> { Box::new(ConstantLR::new().factor(0.5)) };
    let exponential = || -> Box<dyn Schedule> { Box::new(ExponentialLR::new(0.5)) };
    let sequence = SequentialLR::new(vec![exponential(), constant()], [2])?;
    let chain = ChainedScheduler(vec![constant(), exponential()]);
    let parts: Vec<Box<dyn Schedule>> = vec![constant(), Box::new(sequence), Box::new(chain)];
    let mut sgd = SGD::new([parameter(tensor![0.0,])?], SGDOptions::default().lr(1.0))?;
    let mut scheduler = LrScheduler::new(&mut sgd, SequentialLR::new(parts, [1, 4])?)?;
    let mut lrs = Vec::new();
    for _ in 0..6 {
        lrs.push(scheduler.get_last_lr()[0]);
        scheduler.step(&mut sgd)?;
    }
    assert_eq!(lrs, [0.5, 1.0, 0.5, 0.5, 0.5, 0.25]);
    Ok(())
}

/// The error of a schedule that an optimiser is given.
fn refused(schedule: impl Schedule) -> String {
    let mut sgd = sgd().unwrap();
    match LrScheduler::new(&mut sgd, schedule) {
        Ok(_) => panic!("a schedule that is refused"),
        Err(e) => e.to_string(),
    }
}

#[test]
fn arguments_that_lead_to_nan_are_refused_at_once() -> RusTorchResult<()> {
    let nan = f64::NAN;
    for factor in [0.0, -0.5, 1.5, nan] {
        let error = refused(ConstantLR::new().factor(factor));
        let expected =
            format!("ConstantLR: expected factor above 0, at most 1, got factor = {factor}");
        assert!(error.ends_with(&expected), "{error}");
        refused(LinearLR::new().start_factor(factor));
    }
    for factor in [-0.5, 1.5, nan] {
        refused(LinearLR::new().end_factor(factor));
    }
    LrScheduler::new(&mut sgd()?, LinearLR::new().end_factor(0.0))?;
    refused(StepLR::new(0usize));
    refused(StepLR::new(1usize).gamma(nan));
    refused(MultiStepLR::new([1]).gamma(nan));
    refused(ExponentialLR::new(f64::INFINITY));
    refused(PolynomialLR::new().power(-1.0));
    refused(CosineAnnealingLR::new(0usize));
    refused(CosineAnnealingLR::new(1usize).eta_min(nan));
    refused(CosineAnnealingWarmRestarts::new(0usize));
    refused(CosineAnnealingWarmRestarts::new(1usize).t_mult(0usize));
    refused(SWALR::new(nan));
    refused(CyclicLR::new(0.1, nan));
    refused(CyclicLR::new(0.1, 0.5).step_size_up(0usize));
    refused(CyclicLR::new(0.1, 0.5).momentum([nan, 0.9]));
    for total in [0, 10] {
        refused(OneCycleLR::new(0.1, total).pct_start(0.1));
    }
    for part in [-0.1, 1.1, nan] {
        refused(OneCycleLR::new(0.1, 10).pct_start(part));
    }
    refused(OneCycleLR::new(0.1, 10).div_factor(0.0));
    refused(OneCycleLR::new(0.1, 10).final_div_factor(0.0));
    refused(ChainedScheduler(Vec::new()));
    // In others as well, before anything is trained.
    let parts = |factor| -> Vec<Box<dyn Schedule>> {
        let linear = LinearLR::new().start_factor(factor);
        vec![Box::new(ExponentialLR::new(0.9)), Box::new(linear)]
    };
    refused(SequentialLR::new(parts(0.0), [5])?);
    refused(ChainedScheduler(parts(0.0)));
    refused(LambdaLR(|_| nan));
    let mut sgd = sgd()?;
    let mut later = LrScheduler::new(&mut sgd, MultiplicativeLR(|_| nan))?;
    let error = later.step(&mut sgd).unwrap_err().to_string();
    assert!(error.ends_with("expected a learning rate that is a number, got NaN in epoch 1"));
    for plateau in [
        ReduceLROnPlateau::new().factor(1.0),
        ReduceLROnPlateau::new().factor(nan),
        ReduceLROnPlateau::new().min_lr(nan),
    ] {
        assert!(plateau.clone().step(&mut sgd, 1.0).is_err(), "{plateau:?}");
    }
    Ok(())
}

#[test]
fn long_schedules_cost_no_more_and_do_not_overflow() -> RusTorchResult<()> {
    let most = usize::MAX;
    for lr in [
        CosineAnnealingLR::new(most).lr(2, 0.1, 0.1)?,
        CosineAnnealingWarmRestarts::new(1usize).lr(most, 0.1, 0.1)?,
        CosineAnnealingWarmRestarts::new(most - 1)
            .t_mult(most)
            .lr(most, 0.1, 0.1)?,
        OneCycleLR::new(0.1, most).lr(most, 0.1, 0.1)?,
        CyclicLR::new(0.1, 0.2)
            .step_size_up(most)
            .step_size_down(most)
            .lr(most, 0.1, 0.1)?,
    ] {
        assert!((0.0..0.21).contains(&lr), "{lr}");
    }
    Ok(())
}

#[test]
fn a_plateau_goes_on_where_it_was() -> RusTorchResult<()> {
    let mut sgd = sgd()?;
    let plateau = || {
        ReduceLROnPlateau::new()
            .is_max(true)
            .patience(0usize)
            .cooldown(1usize)
    };
    let (mut whole, mut part) = (plateau(), plateau());
    for figure in [f64::NEG_INFINITY, 1.0, 0.5, 2.0] {
        whole.step(&mut sgd, figure)?;
    }
    part.load_state_dict(&whole.state_dict()?)?;
    assert_eq!(part, whole);
    let other = LrScheduler::new(&mut sgd, ExponentialLR::new(0.9))?.state_dict()?;
    let error = part.load_state_dict(&other).unwrap_err().to_string();
    assert!(error.contains("best of ReduceLROnPlateau"), "{error}");
    assert_eq!(part, whole);
    Ok(())
}

#[test]
fn a_schedule_goes_on_where_it_was() -> RusTorchResult<()> {
    let schedule = || CosineAnnealingLR::new(7usize);
    let (mut whole, mut part) = (sgd()?, sgd()?);
    let mut scheduler = LrScheduler::new(&mut whole, schedule())?;
    let mut first = LrScheduler::new(&mut part, schedule())?;
    for _ in 0..3 {
        scheduler.step(&mut whole)?;
        first.step(&mut part)?;
    }
    assert_eq!(part.option(0, "lr"), Some(vec![first.get_last_lr()[0]]));
    let (state, options) = (first.state_dict()?, part.state_dict()?);
    let mut part = sgd()?;
    let mut second = LrScheduler::new(&mut part, schedule())?;
    part.load_state_dict(&options)?;
    second.load_state_dict(&state)?;
    assert_eq!(second.get_last_lr(), first.get_last_lr());
    for _ in 0..9 {
        scheduler.step(&mut whole)?;
        second.step(&mut part)?;
        assert_eq!(whole.option(0, "lr"), part.option(0, "lr"));
    }
    assert_eq!(second.last_epoch(), 12);
    assert!(second.load_state_dict(&options).is_err());
    Ok(())
}

#[test]
fn schedules_that_do_not_fit_are_refused() -> RusTorchResult<()> {
    let mut sgd = sgd()?;
    let mut once = LrScheduler::new(&mut sgd, OneCycleLR::new(0.1, 3))?;
    for _ in 0..3 {
        once.step(&mut sgd)?;
    }
    let error = once.step(&mut sgd).unwrap_err().to_string();
    let expected = "OneCycleLR: expected at most 3 steps, got 4";
    assert!(error.ends_with(expected), "{error}");
    sgd.add_param_group([parameter(tensor![0.0,])?], SGDOptions::default())?;
    assert!(once.step(&mut sgd).is_err());
    assert!(SequentialLR::new(Vec::new(), [3]).is_err());
    let mut adagrad =
        rustorch_nn::optim::Adagrad::new([parameter(tensor![0.0,])?], Default::default())?;
    assert!(LrScheduler::new(&mut adagrad, OneCycleLR::new(0.1, 3)).is_err());
    Ok(())
}
