use std::f64::consts::TAU;

use num_complex::Complex64;
use rustorch_ir::ops::{Fft, FftKind};

use crate::Values;
use crate::operand::{Call, Misuse, from_last};

pub(crate) fn evaluate(op: &Fft, call: &Call) -> Result<Values, Misuse> {
    let x = &call.inputs[0];
    let size = x.shape()[op.dim];
    let lines = x.with_last(&[op.dim]);
    let line = |i: usize| -> Vec<Complex64> {
        let range = i * size..(i + 1) * size;
        match &*lines {
            Values::Float(x) => x[range].iter().map(|&x| x.into()).collect(),
            Values::Complex(x) => x[range].to_vec(),
            _ => unreachable!("inference admits only floating-point and complex values"),
        }
    };
    let count = x.shape().elements() / size;
    let results = (0..count).flat_map(|i| transform(op.kind, line(i)));
    let results = match op.kind {
        FftKind::ComplexToReal { .. } => Values::Float(results.map(|y| y.re).collect()),
        _ => Values::Complex(results.collect()),
    };
    Ok(from_last(&results, &call.output().shape, op.dim))
}

fn transform(kind: FftKind, mut x: Vec<Complex64>) -> Vec<Complex64> {
    let (mut results, mut sign) = (x.len(), -1.0);
    match kind {
        FftKind::Forward => {}
        FftKind::Inverse => sign = 1.0,
        FftKind::RealToComplex => results = x.len() / 2 + 1,
        FftKind::ComplexToReal { n } => {
            // The other half are the conjugates.
            x[0].im = 0.0;
            if n.is_multiple_of(2) {
                x[n / 2].im = 0.0;
            }
            (x.len()..n).for_each(|j| x.push(x[n - j].conj()));
            (results, sign) = (n, 1.0);
        }
    }
    let n = x.len();
    let turn = |part: usize| Complex64::cis(sign * TAU * part as f64 / n as f64);
    let turns: Vec<Complex64> = (0..n).map(turn).collect();
    let sum = |k| (0..n).map(|j| x[j] * turns[j * k % n]).sum();
    (0..results).map(sum).collect()
}
