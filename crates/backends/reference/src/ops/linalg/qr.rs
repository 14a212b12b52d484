use num_complex::Complex64;
use rustorch_ir::ops::Qr;

use super::geqrf::{factor, product};
use crate::Values;
use crate::matrix::{self, Matrix};
use crate::operand::{Call, Misuse};

pub(crate) fn evaluate(op: &Qr, call: &Call) -> Result<[Values; 2], Misuse> {
    let (mut qs, mut rs) = (Vec::new(), Vec::new());
    for mut a in call.inputs[0].matrices() {
        let taus = factor(&mut a);
        let k = if op.complete { a.m } else { a.m.min(a.n) };
        qs.push(product(&a, &taus, k).elements);
        let upper = |i: usize, j: usize| if i <= j { a[[i, j]] } else { Complex64::ZERO };
        rs.push(Matrix::new(k, a.n, upper).elements);
    }
    let ty = call.output();
    Ok([matrix::values(ty, qs), matrix::values(ty, rs)])
}
