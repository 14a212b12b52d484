//! Eigenvalues.

use faer::linalg::evd::EvdError;
use faer::linalg::solvers::{self, SelfAdjointEigen};
use faer::{MatRef, Side};
use num_complex::Complex64;

use crate::{Eigen, NoConvergence, Number, elements, matrix, phase, range, real_diagonal};

pub(crate) fn hermitian<T: Number>(
    a: &[T],
    n: usize,
    vectors: bool,
) -> Result<Eigen<f64, T>, NoConvergence> {
    let is_finite = |(i, row): (usize, &[T])| row[..=i].iter().all(T::is_finite_impl);
    if !a.chunks_exact(n.max(1)).enumerate().all(is_finite) {
        return Err(NoConvergence);
    }
    let mut a = a.to_vec();
    real_diagonal(&mut a, n);
    let back = range::tame(&mut a);
    let a = matrix(&a, n, n);
    if !vectors || n == 0 {
        let mut values = a
            .self_adjoint_eigenvalues(Side::Lower)
            .map_err(|_| NoConvergence)?;
        range::scale(&mut values, back);
        return Ok(Eigen {
            values,
            vectors: Vec::new(),
        });
    }
    let found = SelfAdjointEigen::new(a, Side::Lower).map_err(|_| NoConvergence)?;
    let mut values: Vec<f64> = found
        .S()
        .column_vector()
        .iter()
        .map(T::real_part_impl)
        .collect();
    range::scale(&mut values, back);
    let mut vectors = elements(found.U());
    turn(&mut vectors, n);
    Ok(Eigen { values, vectors })
}

/// How faer finds the eigenvalues of a matrix.
type Solver<T> = fn(MatRef<'_, T>) -> Result<solvers::Eigen<f64>, EvdError>;

pub(crate) fn general<T: Number>(
    a: &[T],
    n: usize,
    vectors: bool,
    solver: Solver<T>,
) -> Result<Eigen<Complex64, Complex64>, NoConvergence> {
    if !a.iter().all(T::is_finite_impl) {
        return Err(NoConvergence);
    }
    if n == 0 {
        return Ok(Eigen {
            values: Vec::new(),
            vectors: Vec::new(),
        });
    }
    let mut a = a.to_vec();
    let back = range::tame(&mut a);
    let found = solver(matrix(&a, n, n)).map_err(|_| NoConvergence)?;
    let mut all: Vec<Complex64> = found.S().column_vector().iter().copied().collect();
    range::scale(&mut all, back);
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|&i, &j| {
        let by_real = all[i].re.total_cmp(&all[j].re);
        by_real.then(all[j].im.total_cmp(&all[i].im))
    });
    let values = order.iter().map(|&i| all[i]).collect();
    if !vectors {
        return Ok(Eigen {
            values,
            vectors: Vec::new(),
        });
    }
    let columns = found.U();
    let row = |i| order.iter().map(move |&j| columns[(i, j)]);
    let mut vectors: Vec<Complex64> = (0..n).flat_map(row).collect();
    for column in 0..n {
        let squares = vectors
            .iter()
            .skip(column)
            .step_by(n)
            .map(Complex64::norm_sqr);
        let length = squares.sum::<f64>().sqrt();
        vectors
            .iter_mut()
            .skip(column)
            .step_by(n)
            .for_each(|x| *x /= length);
    }
    turn(&mut vectors, n);
    Ok(Eigen { values, vectors })
}

/// Gives each of `n` columns its phase.
fn turn<T: Number>(vectors: &mut [T], n: usize) {
    for column in 0..n {
        let back = phase::factor(vectors.iter().skip(column).step_by(n).copied());
        vectors
            .iter_mut()
            .skip(column)
            .step_by(n)
            .for_each(|x| *x *= back);
    }
}
