use num_complex::Complex64;
use rustorch_ir::ops::Cholesky;

use crate::Values;
use crate::matrix::{self, Matrix};
use crate::operand::{Call, Misuse};

pub(crate) fn evaluate(op: &Cholesky, call: &Call) -> Result<[Values; 2], Misuse> {
    let factors: Vec<_> = call.inputs[0].matrices().iter().map(factor).collect();
    if op.check && factors.iter().any(|(_, minor)| *minor > 0) {
        return Err(Misuse("a matrix that is not positive definite".to_owned()));
    }
    let (l, minors): (Vec<_>, Vec<_>) = factors.into_iter().unzip();
    let l = matrix::values(call.output(), l.into_iter().map(|l| l.elements));
    Ok([l, matrix::numbers([minors])])
}

/// The factor, and the order of the first leading minor that is not positive.
fn factor(a: &Matrix) -> (Matrix, usize) {
    let mut l = Matrix::new(a.n, a.n, |_, _| Complex64::ZERO);
    for j in 0..a.n {
        for i in j..a.n {
            let sum: Complex64 = (0..j).map(|k| l[[i, k]] * l[[j, k]].conj()).sum();
            let rest = a[[i, j]] - sum;
            if i == j && rest.re.partial_cmp(&0.0) != Some(std::cmp::Ordering::Greater) {
                return (l, j + 1);
            }
            l[[i, j]] = if i == j {
                rest.re.sqrt().into()
            } else {
                rest / l[[j, j]]
            };
        }
    }
    (l, 0)
}
