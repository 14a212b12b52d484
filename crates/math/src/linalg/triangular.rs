//! Triangular systems.

use faer::Par;
use faer::linalg::triangular_solve as solver;

use super::{Number, Triangle, matrix, matrix_mut};

pub(crate) fn solve<T: Number>(a: &[T], triangle: Triangle, b: &mut [T], n: usize, k: usize) {
    let is_singular = |x: &T| !T::is_finite_impl(&T::recip_impl(x));
    if !triangle.unit && a.iter().step_by(n + 1).any(is_singular) {
        return substitute(a, triangle.upper, b, n, k);
    }
    let (a, b) = (matrix(a, n, n), matrix_mut(b, n, k));
    match (triangle.upper, triangle.unit) {
        (true, true) => solver::solve_unit_upper_triangular_in_place(a, b, Par::Seq),
        (true, false) => solver::solve_upper_triangular_in_place(a, b, Par::Seq),
        (false, true) => solver::solve_unit_lower_triangular_in_place(a, b, Par::Seq),
        (false, false) => solver::solve_lower_triangular_in_place(a, b, Par::Seq),
    }
}

/// Row by row, so that an element which is divided by 0 is infinite, as LAPACK's `trtrs` has it; faer's blocks
/// make it NaN.
fn substitute<T: Number>(a: &[T], upper: bool, b: &mut [T], n: usize, k: usize) {
    for step in 0..n {
        let j = if upper { n - 1 - step } else { step };
        let solved: Vec<T> = b[j * k..][..k].iter().map(|&x| x / a[j * n + j]).collect();
        b[j * k..][..k].copy_from_slice(&solved);
        let rest = if upper { 0..j } else { j + 1..n };
        for i in rest {
            let factor = a[i * n + j];
            let row = b[i * k..][..k].iter_mut().zip(&solved);
            row.for_each(|(x, known)| *x -= factor * *known);
        }
    }
}
