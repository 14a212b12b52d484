use num_complex::Complex64;
use rustorch_ir::ops::Geqrf;

use crate::Values;
use crate::matrix::{self, Matrix};
use crate::operand::{Call, Misuse};

pub(crate) fn evaluate(_op: &Geqrf, call: &Call) -> Result<[Values; 2], Misuse> {
    let mut factors = call.inputs[0].matrices();
    let tau: Vec<_> = factors.iter_mut().map(factor).collect();
    let [a, taus] = call.outputs else {
        unreachable!("inference gives two results");
    };
    let factors = factors.into_iter().map(|a| a.elements);
    Ok([matrix::values(a, factors), matrix::values(taus, tau)])
}

/// Factorises a matrix in place by reflections, whose factors it gives.
pub(crate) fn factor(a: &mut Matrix) -> Vec<Complex64> {
    let mut taus = Vec::new();
    for k in 0..a.m.min(a.n) {
        let alpha = a[[k, k]];
        let length = (k..a.m).map(|i| a[[i, k]].norm_sqr()).sum::<f64>().sqrt();
        let below = (k + 1..a.m).map(|i| a[[i, k]].norm_sqr()).sum::<f64>();
        let is_done = length == 0.0 || (alpha.im == 0.0 && below == 0.0);
        let beta = if is_done {
            alpha.re
        } else {
            -length.copysign(alpha.re)
        };
        let tau = if is_done {
            Complex64::ZERO
        } else {
            (beta - alpha) / beta
        };
        for i in k + 1..a.m {
            a[[i, k]] = if is_done {
                Complex64::ZERO
            } else {
                a[[i, k]] / (alpha - beta)
            };
        }
        let h = reflection(a, k, tau).adjoint();
        let behind = Matrix::new(
            a.m,
            a.n,
            |i, j| if j > k { a[[i, j]] } else { Complex64::ZERO },
        );
        let turned = h.times(&behind);
        for j in k + 1..a.n {
            (0..a.m).for_each(|i| a[[i, j]] = turned[[i, j]]);
        }
        a[[k, k]] = beta.into();
        taus.push(tau);
    }
    taus
}

/// `1 − τ·v·vᴴ`, with `v` below the diagonal of column `k`.
fn reflection(a: &Matrix, k: usize, tau: Complex64) -> Matrix {
    let v = |i: usize| match i.cmp(&k) {
        std::cmp::Ordering::Less => Complex64::ZERO,
        std::cmp::Ordering::Equal => Complex64::ONE,
        std::cmp::Ordering::Greater => a[[i, k]],
    };
    let one = Matrix::identity(a.m, a.m);
    Matrix::new(a.m, a.m, |i, j| one[[i, j]] - tau * v(i) * v(j).conj())
}

/// The first `columns` columns of the product of reflections.
pub(crate) fn product(a: &Matrix, taus: &[Complex64], columns: usize) -> Matrix {
    let mut q = Matrix::identity(a.m, columns);
    for (k, &tau) in taus.iter().enumerate().rev() {
        q = reflection(a, k, tau).times(&q);
    }
    q
}
