use std::cmp::Ordering;

use rustorch_ir::ops::TopK;

use crate::Values;
use crate::operand::{Call, Misuse, from_last};

pub(crate) fn evaluate(op: &TopK, call: &Call) -> Result<[Values; 2], Misuse> {
    let x = &call.inputs[0];
    let size = x.shape()[op.dim];
    let lines = x.with_last(&[op.dim]);
    let best = match &*lines {
        Values::Float(x) => best(x, size, op, |a, b| nan_last(*a, *b)),
        Values::Int(x) => best(x, size, op, Ord::cmp),
        _ => unreachable!("inference admits only ordered values"),
    };
    let places = best.iter().enumerate();
    let values = lines.take(places.map(|(i, &at)| i / op.k * size + at as usize));
    let result = |values| from_last(&values, &call.output().shape, op.dim);
    Ok([values, Values::Int(best)].map(result))
}

/// Numbers in their order, then NaN.
fn nan_last(a: f64, b: f64) -> Ordering {
    let by_nan = || a.is_nan().cmp(&b.is_nan());
    a.partial_cmp(&b).unwrap_or_else(by_nan)
}

/// In each run of `size` elements, the indices of the best.
fn best<T>(x: &[T], size: usize, op: &TopK, order: impl Fn(&T, &T) -> Ordering) -> Vec<i128> {
    let indices = |run: &[T]| {
        // Equal elements stay in their order.
        let mut indices = rustorch_ir::order::order(run.len(), &|i, j| match op.largest {
            true => order(&run[j], &run[i]),
            false => order(&run[i], &run[j]),
        });
        indices.truncate(op.k);
        indices.into_iter().map(|i| i as i128)
    };
    x.chunks(size.max(1)).flat_map(indices).collect()
}
