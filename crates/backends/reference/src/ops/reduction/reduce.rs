use num_complex::Complex64;
use rustorch_ir::ops::{Reduce, ReduceOp};

use crate::Values;
use crate::operand::{Call, Misuse};
use crate::ops::binary::{maximum, minimum};
use crate::values::Element;

pub(crate) fn evaluate(op: &Reduce, call: &Call) -> Result<Values, Misuse> {
    let x = &call.inputs[0];
    let count = op.dims.iter().map(|&d| x.shape()[d]).product();
    let results = call.output().shape.elements();
    Ok(match &*x.with_last(&op.dims) {
        Values::Float(x) => Values::Float(fold(x, count, results, real(op.op))),
        Values::Int(x) => Values::Int(fold(x, count, results, integer(op.op))),
        Values::Complex(x) => Values::Complex(fold(x, count, results, complex(op.op))),
        Values::Blocks(_) => unreachable!("inference admits only scalars"),
    })
}

/// A neutral element and the function that combines two elements.
type Fold<T> = (T, fn(T, T) -> T);

fn real(op: ReduceOp) -> Fold<f64> {
    match op {
        ReduceOp::Sum => (0.0, Element::plus),
        ReduceOp::Prod => (1.0, Element::times),
        ReduceOp::Max => (f64::NEG_INFINITY, maximum),
        ReduceOp::Min => (f64::INFINITY, minimum),
    }
}

fn integer(op: ReduceOp) -> Fold<i128> {
    match op {
        ReduceOp::Sum => (0, Element::plus),
        ReduceOp::Prod => (1, Element::times),
        ReduceOp::Max => (i128::MIN, Ord::max),
        ReduceOp::Min => (i128::MAX, Ord::min),
    }
}

fn complex(op: ReduceOp) -> Fold<Complex64> {
    match op {
        ReduceOp::Sum => (Element::ZERO, Element::plus),
        ReduceOp::Prod => (Element::ONE, Element::times),
        ReduceOp::Max | ReduceOp::Min => unreachable!("complex numbers have no order"),
    }
}

/// Combines each of `results` runs of `count` elements.
fn fold<T: Copy>(x: &[T], count: usize, results: usize, (neutral, combine): Fold<T>) -> Vec<T> {
    let run = |i| &x[i * count..(i + 1) * count];
    let combined = |i| run(i).iter().copied().fold(neutral, combine);
    (0..results).map(combined).collect()
}
