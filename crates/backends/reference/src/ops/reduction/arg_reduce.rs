use std::cmp::Ordering;

use rustorch_ir::ops::ArgReduce;

use crate::Values;
use crate::operand::{Call, Misuse};

pub(crate) fn evaluate(op: &ArgReduce, call: &Call) -> Result<Vec<Values>, Misuse> {
    let x = &call.inputs[0];
    let size = x.shape()[op.dim];
    let lines = x.with_last(&[op.dim]);
    let best = match (&*lines, op.largest) {
        (Values::Float(x), true) => first_best(x, size, |a, b| beats(a, b, a > b)),
        (Values::Float(x), false) => first_best(x, size, |a, b| beats(a, b, a < b)),
        (Values::Int(x), true) => first_best(x, size, |a, b| a.cmp(&b) == Ordering::Greater),
        (Values::Int(x), false) => first_best(x, size, |a, b| a.cmp(&b) == Ordering::Less),
        _ => unreachable!("inference admits only ordered values"),
    };
    let places = best.iter().enumerate();
    let places = places.map(|(line, &at)| line * size + at as usize);
    let values = op.values.then(|| lines.take(places));
    Ok(values.into_iter().chain([Values::Int(best)]).collect())
}

/// Does `a` beat `b`, given whether the one number beats the other? NaN beats numbers.
fn beats(a: f64, b: f64, number_beats: bool) -> bool {
    number_beats || (a.is_nan() && !b.is_nan())
}

/// In each run of `size` elements, the index of the first that no other beats.
fn first_best<T: Copy>(x: &[T], size: usize, beats: impl Fn(T, T) -> bool) -> Vec<i128> {
    let best = |run: &[T]| {
        (1..run.len()).fold(0, |best, i| if beats(run[i], run[best]) { i } else { best })
    };
    x.chunks(size.max(1)).map(|run| best(run) as i128).collect()
}
