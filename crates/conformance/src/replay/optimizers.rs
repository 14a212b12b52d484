//! Optimisers: options, parameters, gradients of some steps, and the parameters after each.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use rustorch_dispatch::{Called, Output, Value, missing};
use rustorch_ir::DType;
use rustorch_nn::nn::parameter;
use rustorch_nn::optim::{
    ASGDOptions, AdadeltaOptions, AdafactorOptions, AdagradOptions, AdamOptions, AdamWOptions,
    AdamaxOptions, AdjustLr, LBFGS, LBFGSOptions, MuonOptions, NAdamOptions, Optimizer,
    OptionValue, Options, RAdamOptions, RMSpropOptions, RpropOptions, Rule, SGDOptions,
    SparseAdamOptions,
};
use rustorch_tensor::{RusTorchResult, Tensor, eval_all};
use safetensors::SafeTensors;
use serde::Deserialize;
use serde_json::{Map, Value as Json};

use crate::replay::compare::How;
use crate::replay::golden::{Tensors, read_json};
use crate::replay::report::{OpReport, Verdict};
use crate::replay::samples::{guarded, judge};

/// An optimiser's file.
#[derive(Deserialize)]
struct File {
    name: String,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    dtype: String,
    sample: usize,
    options: Map<String, Json>,
    parameters: Vec<Json>,
    /// Targets of L-BFGS, whose objective is `Σ w (p - t)² / 2 + (p - t)⁴ / 10`.
    #[serde(default)]
    targets: Vec<Json>,
    #[serde(default)]
    weights: Vec<Json>,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Step {
    #[serde(default)]
    gradients: Vec<Json>,
    /// Parameters after the step.
    parameters: Vec<Json>,
}

/// The samples of an optimiser.
pub(crate) fn replay(folder: &Path, stem: &str) -> Result<OpReport> {
    let path = folder.join(format!("{stem}.safetensors"));
    let bytes = fs::read(&path).with_context(|| path.display().to_string())?;
    let tensors = Tensors(SafeTensors::deserialize(&bytes).with_context(|| stem.to_owned())?);
    let file: File = read_json(&folder.join(format!("{stem}.json")))?;
    let replay_case = match file.name.as_str() {
        "optim.ASGD" => Some(replay_case::<ASGDOptions> as Replay),
        "optim.Adadelta" => Some(replay_case::<AdadeltaOptions> as Replay),
        "optim.Adafactor" => Some(replay_case::<AdafactorOptions> as Replay),
        "optim.Adagrad" => Some(replay_case::<AdagradOptions> as Replay),
        "optim.Adam" => Some(replay_case::<AdamOptions> as Replay),
        "optim.AdamW" => Some(replay_case::<AdamWOptions> as Replay),
        "optim.Adamax" => Some(replay_case::<AdamaxOptions> as Replay),
        "optim.LBFGS" => Some(replay_lbfgs as Replay),
        "optim.Muon" => Some(replay_case::<MuonOptions> as Replay),
        "optim.NAdam" => Some(replay_case::<NAdamOptions> as Replay),
        "optim.RAdam" => Some(replay_case::<RAdamOptions> as Replay),
        "optim.RMSprop" => Some(replay_case::<RMSpropOptions> as Replay),
        "optim.Rprop" => Some(replay_case::<RpropOptions> as Replay),
        "optim.SGD" => Some(replay_case::<SGDOptions> as Replay),
        "optim.SparseAdam" => Some(replay_case::<SparseAdamOptions> as Replay),
        _ => None,
    };
    let mut report = OpReport::new(file.name, "optimizers");
    for case in &file.cases {
        let verdict = match replay_case {
            Some(replay_case) => guarded(|| replay_case(case, &tensors)),
            None => Verdict::Missing("no optimiser of this name".into()),
        };
        report.add(format!("{} #{}", case.dtype, case.sample), verdict);
    }
    Ok(report)
}

type Replay = fn(&Case, &Tensors) -> Result<Verdict>;

impl Case {
    fn options(&self, tensors: &Tensors) -> Result<Vec<(&String, Value)>> {
        let options = self.options.iter();
        options
            .map(|(name, json)| Ok((name, tensors.value(json)?)))
            .collect()
    }

    /// Compares the parameters after each step.
    fn compare(&self, results: &[Vec<Tensor>], tensors: &Tensors) -> Result<(), String> {
        for (i, (step, results)) in self.steps.iter().zip(results).enumerate() {
            for (expected, got) in step.parameters.iter().zip(results) {
                let told = |e: String| format!("step {}: {e}", i + 1);
                let expected = tensors
                    .expected(expected)
                    .map_err(|e| told(e.to_string()))?;
                expected
                    .compare(&Output::Tensor(got.clone()), How::Close)
                    .map_err(told)?;
            }
        }
        Ok(())
    }
}

fn list(list: &[Json], tensors: &Tensors) -> Result<Vec<Tensor>> {
    list.iter().map(|json| tensors.tensor(json)).collect()
}

/// Copies of memory that the next step writes over.
fn copies(parameters: &[Tensor]) -> RusTorchResult<Vec<Tensor>> {
    let copies = parameters
        .iter()
        .map(|parameter| parameter.detach().mul(1.0));
    let copies: Vec<Tensor> = copies.collect::<RusTorchResult<_>>()?;
    eval_all(&copies.iter().collect::<Vec<_>>())?;
    Ok(copies)
}

fn replay_case<R: Rule>(case: &Case, tensors: &Tensors) -> Result<Verdict> {
    let parameters = list(&case.parameters, tensors)?;
    let steps = case.steps.iter().map(|step| list(&step.gradients, tensors));
    let steps: Vec<Vec<Tensor>> = steps.collect::<Result<_>>()?;
    let options = case.options(tensors)?;
    let mut results = Vec::new();
    let outcome = (|| {
        let mut options = options.iter();
        let rule = options.try_fold(R::default(), |rule, (name, value)| set(rule, name, value))?;
        let parameters = parameters.into_iter().map(parameter);
        let parameters = parameters.collect::<Result<Vec<_>, _>>()?;
        let mut optimizer = Optimizer::new(parameters.clone(), rule)?;
        for gradients in &steps {
            for (parameter, gradient) in parameters.iter().zip(gradients) {
                parameter.set_grad(Some(gradient))?;
            }
            optimizer.step()?;
            results.push(copies(&parameters)?);
        }
        Ok(Output::Value(Value::None))
    })();
    judge(outcome, |_| case.compare(&results, tensors))
}

fn replay_lbfgs(case: &Case, tensors: &Tensors) -> Result<Verdict> {
    let parameters = list(&case.parameters, tensors)?;
    let (targets, weights) = (list(&case.targets, tensors)?, list(&case.weights, tensors)?);
    let options = case.options(tensors)?;
    let mut results = Vec::new();
    let outcome = (|| {
        let mut rule = LBFGSOptions::default();
        for (name, value) in &options {
            rule = match (name.as_str(), value) {
                ("line_search_fn", Value::Text(_)) => rule.strong_wolfe(true),
                ("line_search_fn", _) => rule,
                _ => set(rule, name, value)?,
            };
        }
        let parameters = parameters.into_iter().map(parameter);
        let parameters = parameters.collect::<Result<Vec<_>, _>>()?;
        let mut lbfgs = LBFGS::new(parameters.clone(), rule)?;
        for _ in &case.steps {
            lbfgs.step(|| {
                parameters.iter().for_each(Tensor::zero_grad);
                let mut loss: Option<Tensor> = None;
                for ((p, target), weight) in parameters.iter().zip(&targets).zip(&weights) {
                    let square = p.sub(target)?.square()?;
                    let part = square
                        .mul(weight)?
                        .mul(0.5)?
                        .add(&square.square()?.mul(0.1)?)?;
                    let part = part.sum(None, false)?;
                    loss = Some(loss.map_or(Ok(part.clone()), |loss| loss.add(&part))?);
                }
                let loss = loss.map_or_else(|| Tensor::scalar(0.0, DType::F32), Ok)?;
                loss.backward()?;
                Ok(loss)
            })?;
            results.push(copies(&parameters)?);
        }
        Ok(Output::Value(Value::None))
    })();
    judge(outcome, |_| case.compare(&results, tensors))
}

/// The options with another, by PyTorch's name and value.
fn set<R: Options>(mut rule: R, name: &str, value: &Value) -> Called<R> {
    let number = |value: &Value| match *value {
        Value::Float(x) => Some(x),
        Value::Int(x) => Some(x as f64),
        Value::Bool(x) => Some(f64::from(u8::from(x))),
        _ => None,
    };
    let is_set = match (name, value) {
        ("adjust_lr_fn", Value::Text(text)) => {
            let kind = match text.as_str() {
                "match_rms_adamw" => AdjustLr::MatchRmsAdamw,
                "spectral_unclamped" => AdjustLr::SpectralUnclamped,
                _ => AdjustLr::Original,
            };
            rule.set_option(name, &kind.numbers())
        }
        ("adjust_lr_fn", Value::None) => true,
        // Adafactor's.
        ("eps", Value::Tuple(parts)) => {
            let mut parts = parts
                .iter()
                .map(|part| number(part).into_iter().collect::<Vec<_>>());
            let both = [parts.next(), parts.next()].map(Option::unwrap_or_default);
            rule.set_option("eps1", &both[0]) && rule.set_option("eps2", &both[1])
        }
        (_, Value::Tuple(parts) | Value::List(parts)) => {
            let numbers: Option<Vec<f64>> = parts.iter().map(number).collect();
            numbers.is_some_and(|numbers| rule.set_option(name, &numbers))
        }
        _ => number(value).is_some_and(|number| rule.set_option(name, &[number])),
    };
    match is_set {
        true => Ok(rule),
        false => missing(format!("option {name}={value}")),
    }
}
