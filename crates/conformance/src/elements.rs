//! The elements of tensors as real numbers.

use rustorch_ir::{Layout, Shape};
use rustorch_reference::Values;

/// Number of elements.
pub(crate) fn count(values: &Values) -> usize {
    match values {
        Values::Float(x) => x.len(),
        Values::Int(x) => x.len(),
        Values::Complex(x) => x.len(),
        Values::Blocks(x) => x.len(),
    }
}

/// The elements' moduli.
pub(crate) fn moduli(values: &Values) -> Vec<f64> {
    match values {
        Values::Float(x) => x.iter().map(|x| x.abs()).collect(),
        Values::Int(x) => x.iter().map(|&x| (x as f64).abs()).collect(),
        Values::Complex(x) => x.iter().map(|z| z.norm()).collect(),
        Values::Blocks(x) => x.iter().map(|_| 0.0).collect(),
    }
}

/// The elements as real numbers; complex ones by their moduli.
pub(crate) fn reals(values: &Values) -> Vec<f64> {
    match values {
        Values::Float(x) => x.clone(),
        Values::Int(x) => x.iter().map(|&x| x as f64).collect(),
        other => moduli(other),
    }
}

/// Differences of elements; 0 where both are the same, NaN and infinities included.
pub(crate) fn differences(a: &Values, b: &Values) -> Vec<f64> {
    let between = |a: f64, b: f64| match a == b || (a.is_nan() && b.is_nan()) {
        true => 0.0,
        false => (a - b).abs(),
    };
    match (a, b) {
        (Values::Complex(a), Values::Complex(b)) => {
            a.iter().zip(b).map(|(a, b)| (a - b).norm()).collect()
        }
        (a, b) => {
            let pairs = reals(a).into_iter().zip(reals(b));
            pairs.map(|(a, b)| between(a, b)).collect()
        }
    }
}

/// The elements of a tensor of shape `from` broadcast to `to`.
pub(crate) fn spread(x: &[f64], from: &Shape, to: &Shape) -> Vec<f64> {
    let layout = Layout::contiguous(from).broadcast_to(to);
    layout.positions().map(|at| x[at]).collect()
}

/// Infinities and NaN have to be the same. An infinite bound of an infinite element says nothing.
pub(crate) fn usable(error: Vec<f64>, values: &Values) -> Vec<f64> {
    let pairs = error.into_iter().zip(moduli(values));
    let each = pairs.map(|(e, y)| match y.is_finite() && !e.is_nan() {
        true => e,
        false => 0.0,
    });
    each.collect()
}
