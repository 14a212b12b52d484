//! Triangular systems.

use faer::Par;
use faer::linalg::triangular_solve as solver;

use crate::{Number, Triangle, matrix, matrix_mut};

pub(crate) fn solve<T: Number>(a: &[T], triangle: Triangle, b: &mut [T], n: usize, k: usize) {
    let (a, b) = (matrix(a, n, n), matrix_mut(b, n, k));
    match (triangle.upper, triangle.unit) {
        (true, true) => solver::solve_unit_upper_triangular_in_place(a, b, Par::Seq),
        (true, false) => solver::solve_upper_triangular_in_place(a, b, Par::Seq),
        (false, true) => solver::solve_unit_lower_triangular_in_place(a, b, Par::Seq),
        (false, false) => solver::solve_lower_triangular_in_place(a, b, Par::Seq),
    }
}
