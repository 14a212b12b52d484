use rustorch_ir::ops::{Scan, ScanOp};

use crate::Values;
use crate::operand::{Call, Misuse, from_last};
use crate::ops::binary::{maximum, minimum};
use crate::values::{Element, each_type};

pub(crate) fn evaluate(op: &Scan, call: &Call) -> Result<Values, Misuse> {
    let x = &call.inputs[0];
    let size = x.shape()[op.dim];
    let lines = x.with_last(&[op.dim]);
    let results = match (op.op, &*lines) {
        (ScanOp::Sum, lines) => each_type!(lines, x => running(x, size, Element::plus)),
        (ScanOp::Prod, lines) => each_type!(lines, x => running(x, size, Element::times)),
        (ScanOp::Max, Values::Int(x)) => Values::Int(running(x, size, i128::max)),
        (ScanOp::Min, Values::Int(x)) => Values::Int(running(x, size, i128::min)),
        (ScanOp::Max, Values::Float(x)) => Values::Float(running(x, size, maximum)),
        (ScanOp::Min, Values::Float(x)) => Values::Float(running(x, size, minimum)),
        (ScanOp::LogSumExp, Values::Float(x)) => Values::Float(running(x, size, log_add_exp)),
        _ => unreachable!("inference admits only dtypes that the scan is defined for"),
    };
    Ok(from_last(&results, x.shape(), op.dim))
}

/// Each element combined with all before it in its run of `size`.
fn running<T: Element>(x: &[T], size: usize, combine: impl Fn(T, T) -> T) -> Vec<T> {
    let mut results = x.to_vec();
    for run in results.chunks_mut(size.max(1)) {
        for i in 1..run.len() {
            run[i] = combine(run[i - 1], run[i]);
        }
    }
    results
}

/// `ln(eᵃ + eᵇ)`
fn log_add_exp(a: f64, b: f64) -> f64 {
    let largest = maximum(a, b);
    match largest.is_infinite() {
        true => largest,
        false => largest + (-(a - b).abs()).exp().ln_1p(),
    }
}
