use num_complex::Complex64;
use rustorch_ir::ops::Lu;

use crate::Values;
use crate::matrix::{self, Matrix};
use crate::operand::{Call, Misuse};

pub(crate) fn evaluate(op: &Lu, call: &Call) -> Result<[Values; 3], Misuse> {
    let mut factors = call.inputs[0].matrices();
    let exchanges: Vec<_> = factors.iter_mut().map(factor).collect();
    let zero = |a: &Matrix| {
        let zero = (0..a.m.min(a.n)).find(|&i| a[[i, i]] == Complex64::ZERO);
        zero.map_or(0, |i| i + 1)
    };
    let zeros: Vec<usize> = factors.iter().map(zero).collect();
    if op.check && zeros.iter().any(|zero| *zero > 0) {
        return Err(Misuse("a matrix that is singular".to_owned()));
    }
    let factors = matrix::values(call.output(), factors.into_iter().map(|a| a.elements));
    Ok([
        factors,
        matrix::numbers(exchanges),
        matrix::numbers([zeros]),
    ])
}

/// Factorises a matrix in place; gives the rows, from 1, that rows were exchanged with.
fn factor(a: &mut Matrix) -> Vec<usize> {
    let size = |x: Complex64| x.re.abs() + x.im.abs();
    let mut exchanges = Vec::new();
    for k in 0..a.m.min(a.n) {
        // The first of the largest.
        let pivot = (k..a.m)
            .rev()
            .max_by(|&i, &j| size(a[[i, k]]).total_cmp(&size(a[[j, k]])));
        let pivot = pivot.unwrap_or(k);
        exchanges.push(pivot + 1);
        for j in 0..a.n {
            a.elements.swap(k * a.n + j, pivot * a.n + j);
        }
        for i in k + 1..a.m {
            if a[[k, k]] != Complex64::ZERO {
                a[[i, k]] = a[[i, k]] / a[[k, k]];
            }
            for j in k + 1..a.n {
                a[[i, j]] = a[[i, j]] - a[[i, k]] * a[[k, j]];
            }
        }
    }
    exchanges
}
