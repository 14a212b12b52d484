//! Learning rates of schedules, as PyTorch's `lr_scheduler` has them: `goldens/lr_scheduler.json` is from
//! `scripts/module-goldens.py --seed 0`.

use rustorch_nn::nn::parameter;
use rustorch_nn::optim::lr_scheduler::*;
use rustorch_nn::optim::{LearningRates, SGD, SGDOptions};
use rustorch_tensor::{RusTorchResult, tensor};
use serde::Deserialize;
use serde_json::{Map, Value};

#[derive(Deserialize)]
struct Golden {
    name: String,
    kwargs: Map<String, Value>,
    /// Of both groups, at first and after each step.
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
            let mut plateau = ReduceLROnPlateau::default();
            plateau.is_max = golden.has("mode", "max");
            plateau.is_absolute = golden.has("threshold_mode", "abs");
            plateau.factor = golden.float("factor", 0.1);
            plateau.patience = golden.int("patience");
            plateau.threshold = golden.float("threshold", 1e-4);
            plateau.cooldown = golden.float("cooldown", 0.0) as usize;
            plateau.min_lr = golden.float("min_lr", 0.0);
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
