use rustorch_ir::ops::Eigh;
use rustorch_ir::order::order;

use super::svd::{rotate, rotation};
use crate::Values;
use crate::matrix::{self, Matrix};
use crate::operand::{Call, Misuse};

/// Times that all pairs of rows are gone through.
const SWEEPS: usize = 30;

pub(crate) fn evaluate(op: &Eigh, call: &Call) -> Result<Vec<Values>, Misuse> {
    let found: Vec<_> = call.inputs[0].matrices().iter().map(eigh).collect();
    let values = found
        .iter()
        .map(|(w, _)| w.iter().map(|&w| w.into()).collect());
    let mut results = vec![matrix::values(call.output(), values)];
    if op.vectors {
        let vectors = found.iter().map(|(_, v)| v.elements.clone());
        results.push(matrix::values(&call.outputs[1], vectors));
    }
    Ok(results)
}

/// Jacobi's rotations, which make the lower triangle's matrix diagonal.
fn eigh(lower: &Matrix) -> (Vec<f64>, Matrix) {
    let n = lower.n;
    let mut a = Matrix::new(n, n, |i, j| match i.cmp(&j) {
        std::cmp::Ordering::Less => lower[[j, i]].conj(),
        std::cmp::Ordering::Equal => lower[[i, i]].re.into(),
        std::cmp::Ordering::Greater => lower[[i, j]],
    });
    let mut v = Matrix::identity(n, n);
    for _ in 0..SWEEPS {
        for p in 0..n {
            for q in p + 1..n {
                if let Some(rotation) = rotation(a[[p, p]].re, a[[q, q]].re, a[[p, q]]) {
                    rotate(&mut a, p, q, rotation);
                    a = a.adjoint();
                    rotate(&mut a, p, q, rotation);
                    rotate(&mut v, p, q, rotation);
                }
            }
        }
    }
    let order = order(n, &|i, j| a[[i, i]].re.total_cmp(&a[[j, j]].re));
    let mut v = v.columns(&order);
    for j in 0..n {
        let phase = v.phase(j);
        v.scale(j, phase);
    }
    (order.iter().map(|&i| a[[i, i]].re).collect(), v)
}
