use rustorch_ir::ops::MatrixExp;

use crate::Values;
use crate::matrix::{self, Matrix};
use crate::operand::{Call, Misuse};

/// Terms of the series, enough for elements below 1/2.
const TERMS: usize = 30;

pub(crate) fn evaluate(_op: &MatrixExp, call: &Call) -> Result<Values, Misuse> {
    let results = call.inputs[0].matrices();
    let results = results.iter().map(|a| exponential(a).elements);
    Ok(matrix::values(call.output(), results))
}

/// The series of a fraction of the matrix, squared as often as it was halved.
fn exponential(a: &Matrix) -> Matrix {
    let sum: f64 = a.elements.iter().map(|x| x.norm()).sum();
    let halvings = (2.0 * sum).log2().ceil().max(0.0) as i32;
    let x = Matrix::new(a.n, a.n, |i, j| a[[i, j]] / 2f64.powi(halvings));
    let mut result = Matrix::identity(a.n, a.n);
    for i in (1..=TERMS).rev() {
        let product = x.times(&result);
        let one = Matrix::identity(a.n, a.n);
        result = Matrix::new(a.n, a.n, |j, k| one[[j, k]] + product[[j, k]] / i as f64);
    }
    for _ in 0..halvings {
        result = result.times(&result);
    }
    result
}
