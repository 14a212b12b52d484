//! Counts, covariance, differences.

use rustorch_tensor::{Bins, Spacing, Tensor};

use crate::call::{Call, Called, missing};
use crate::value::{Output, Value};

table! {
    "bincount", "input, weights=None, minlength=0", |c| {
        c.input()?.bincount(c.optional("weights")?, c.int("minlength")?)?
    };
    "corrcoef", "input", |c| c.input()?.corrcoef()?;
    "cov", "input, *, correction=1, fweights=None, aweights=None", |c| {
        let (fweights, aweights) = (c.optional("fweights")?, c.optional("aweights")?);
        c.input()?.cov(c.int("correction")?, fweights, aweights)?
    };
    "gradient", "input, *, spacing=1, dim=None, edge_order=1", |c| {
        c.input()?.gradient(spacing(c)?, c.dims("dim")?, c.int("edge_order")?)?
    };
    "histc", "input, bins=100, min=0, max=0", |c| {
        c.input()?.histc(c.int("bins")?, c.float("min")?, c.float("max")?)?
    };
    "histogram", "input, bins, *, range=None, weight=None, density=False", |c| {
        let bins = bins(c.value("bins")?)?;
        let (range, weight) = (ranges(c)?.map(|ranges| ranges[0]), c.optional("weight")?);
        c.input()?.histogram(bins, range, weight, c.bool("density")?)?
    };
    "histogramdd", "input, bins, range=None, weight=None, density=False", |c| {
        let dims = c.input()?.size(-1)?;
        let all = match c.value("bins")?.parts() {
            Some(parts) => parts.iter().map(bins).collect::<Called<Vec<_>>>()?,
            None => vec![bins(c.value("bins")?)?; dims],
        };
        let (ranges, weight) = (ranges(c)?, c.optional("weight")?);
        let density = c.bool("density")?;
        let (hist, edges) = c.input()?.histogramdd(&all, ranges.as_deref(), weight, density)?;
        Output::List(vec![hist.into(), edges.into()])
    };
}

fn bins(value: &Value) -> Called<Bins> {
    match value {
        Value::Int(count) => match usize::try_from(*count) {
            Ok(count) => Ok(count.into()),
            Err(_) => Err(crate::call::CallError::Untyped(format!("bins={count}"))),
        },
        Value::Tensor(edges) => Ok(edges.into()),
        other => missing(format!("bins={other}")),
    }
}

/// Pairs of bounds, one after the other.
fn ranges(c: &Call) -> Called<Option<Vec<[f64; 2]>>> {
    let value = c.value("range")?;
    let number = |value: &Value| match *value {
        Value::Float(x) => Some(x),
        Value::Int(x) => Some(x as f64),
        _ => None,
    };
    let Some(parts) = value.parts() else {
        return Ok(None);
    };
    let numbers: Option<Vec<f64>> = parts.iter().map(number).collect();
    match numbers {
        Some(numbers) => Ok(Some(numbers.as_chunks::<2>().0.to_vec())),
        None => missing(format!("range={value}")),
    }
}

/// A number, or a number or vector of places for each dimension.
fn spacing(c: &Call) -> Called<Spacing> {
    let value = c.value("spacing")?;
    if !c.has("spacing") {
        return Ok(1.0.into());
    }
    let Some(parts) = value.parts() else {
        return Ok(c.float("spacing")?.into());
    };
    let number = |value: &Value| match *value {
        Value::Float(x) => Some(x),
        Value::Int(x) => Some(x as f64),
        _ => None,
    };
    let place = |value: &Value| match value {
        Value::Tensor(places) => Some(places.clone()),
        _ => None,
    };
    if let Some(steps) = parts.iter().map(number).collect::<Option<Vec<f64>>>() {
        return Ok(Spacing::Steps(steps));
    }
    match parts.iter().map(place).collect::<Option<Vec<Tensor>>>() {
        Some(places) => Ok(Spacing::Places(places)),
        None => missing(format!("spacing={value}")),
    }
}
