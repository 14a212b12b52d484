//! Gradients of samples.

use anyhow::{Context, Result, bail};
use rustorch_dispatch::{CallError, Function, Output, Value};
use rustorch_tensor::autograd::grad_with;
use rustorch_tensor::{GradOptions, RusTorchError, Tensor};
use serde_json::Value as Json;

use crate::replay::compare::{Expected, How};
use crate::replay::golden::{Given, Gradients, Sample, Tensors};
use crate::replay::report::Verdict;
use crate::replay::samples::{call, judge};

/// A sample that has gradients; `None` where there is nothing to compare, as its results are unique only up
/// to signs or phases.
pub(crate) fn sample(
    entry: &Function,
    sample: &Sample,
    tensors: &Tensors,
) -> Option<Result<Verdict>> {
    let gradients = sample.gradients()?;
    let is_unique = matches!(sample.how(), How::Close | How::Ties);
    is_unique.then(|| replay(entry, sample, gradients, tensors))
}

fn replay(
    entry: &Function,
    sample: &Sample,
    gradients: &Gradients,
    tensors: &Tensors,
) -> Result<Verdict> {
    let mut given = sample.given(tensors)?;
    let mut leaves = Vec::new();
    for path in &gradients.of {
        let leaf = argument(&mut given, path)?;
        leaf.requires_grad_(true)?;
        leaves.push(leaf.clone());
    }
    let cotangents = gradients.cotangents.iter().map(|json| tensors.tensor(json));
    let cotangents: Vec<Tensor> = cotangents.collect::<Result<_>>()?;
    let expected = (gradients
        .grads
        .iter()
        .chain(gradients.second.iter().flatten()))
    .map(|json| tensors.expected(json));
    let expected: Vec<Expected> = expected.collect::<Result<_>>()?;
    let found = call(entry, given).and_then(|output| {
        let mut results = Vec::new();
        collect(&output, &mut results);
        let chosen = gradients.from.iter().map(|&i| results.get(i).copied());
        let chosen = chosen.collect::<Option<Vec<&Tensor>>>();
        let chosen = chosen.ok_or_else(|| CallError::Missing("other results".into()))?;
        let usual = || GradOptions::default().allow_unused(true);
        let (mut ends, mut options) = (Vec::new(), usual());
        options = options.create_graph(gradients.second.is_some());
        for (end, cotangent) in chosen.into_iter().zip(&cotangents) {
            if end.requires_grad() {
                ends.push(end);
                options = options.gradient(cotangent);
            }
        }
        let mut found = found_for(&ends, &leaves, &options)?;
        if gradients.second.is_some() {
            let firsts: Vec<&Tensor> = found.iter().filter(|x| x.requires_grad()).collect();
            let ones = firsts.iter().map(|x| x.detach().ones_like());
            let ones = ones.collect::<Result<Vec<Tensor>, RusTorchError>>()?;
            let options = ones.iter().fold(usual(), GradOptions::gradient);
            let second = found_for(&firsts, &leaves, &options)?;
            found.extend(second);
        }
        Ok(Output::List(
            found.into_iter().map(Output::Tensor).collect(),
        ))
    });
    judge(found, |found| compare(&expected, &found, leaves.len()))
}

/// The gradients of leaves; one that nothing leads to is as good as zeros.
fn found_for(
    ends: &[&Tensor],
    leaves: &[Tensor],
    options: &GradOptions,
) -> Result<Vec<Tensor>, RusTorchError> {
    let found = match ends {
        [] => vec![None; leaves.len()],
        _ => grad_with(ends, &leaves.iter().collect::<Vec<_>>(), options)?,
    };
    let materialized = found
        .into_iter()
        .zip(leaves)
        .map(|(found, leaf)| match found {
            Some(gradient) => Ok(gradient),
            None => leaf.detach().zeros_like(),
        });
    materialized.collect()
}

/// Compares gradients of `leaves` leaves, and second derivatives behind them, if there are any.
fn compare(expected: &[Expected], found: &Output, leaves: usize) -> Result<(), String> {
    let Output::List(found) = found else {
        return Err("no list".into());
    };
    for (i, (expected, found)) in expected.iter().zip(found).enumerate() {
        let compared = match (expected, found) {
            (Expected::Value(Value::None), Output::Tensor(found)) => is_zero(found),
            _ => expected.compare(found, How::Close),
        };
        let kind = if i < leaves {
            "gradient"
        } else {
            "second derivative"
        };
        compared.map_err(|e| format!("{kind} {}: {e}", i % leaves))?;
    }
    Ok(())
}

fn is_zero(gradient: &Tensor) -> Result<(), String> {
    let told = |e: RusTorchError| e.to_string();
    let count = gradient.count_nonzero(None).map_err(told)?;
    match count.to_scalar::<i64>().map_err(told)? {
        0 => Ok(()),
        count => Err(format!("{count} elements other than 0, should be none")),
    }
}

/// The tensor at a path: `input`, `args` and its number, or `kwargs` and its name; then numbers of parts.
fn argument<'a>((positional, keywords): &'a mut Given, path: &[Json]) -> Result<&'a mut Tensor> {
    let number = |json: &Json| json.as_u64().map(|n| n as usize);
    let (mut value, rest) = match path {
        [Json::String(kind), rest @ ..] if kind == "input" => (positional.first_mut(), rest),
        [Json::String(kind), at, rest @ ..] if kind == "args" => {
            let at = number(at).context("a number")?;
            (positional.get_mut(1 + at), rest)
        }
        [Json::String(kind), Json::String(name), rest @ ..] if kind == "kwargs" => {
            let mut keywords = keywords.iter_mut();
            (keywords.find(|(n, _)| n == name).map(|(_, v)| v), rest)
        }
        _ => bail!("no path: {path:?}"),
    };
    for at in rest {
        let at = number(at).context("a number")?;
        value = match value {
            Some(Value::List(parts) | Value::Tuple(parts)) => parts.get_mut(at),
            _ => None,
        };
    }
    match value {
        Some(Value::Tensor(tensor)) => Ok(tensor),
        _ => bail!("no tensor at {path:?}"),
    }
}

/// The tensors of a result, in order.
fn collect<'a>(output: &'a Output, into: &mut Vec<&'a Tensor>) {
    match output {
        Output::Tensor(tensor) => into.push(tensor),
        Output::List(parts) => parts.iter().for_each(|part| collect(part, into)),
        Output::Value(_) => {}
    }
}
