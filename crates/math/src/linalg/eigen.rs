//! Eigenvalues.

use faer::linalg::evd::EvdError;
use faer::linalg::solvers::{self, SelfAdjointEigen};
use faer::{MatRef, Side};
use num_complex::Complex64;

use super::{
    Eigen, NoConvergence, Number, Vectors, elements, matrix, phase, range, real_diagonal, svd,
};

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

/// faer's function for the eigenvalues of a matrix.
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
    let all: Vec<Complex64> = found.S().column_vector().iter().copied().collect();
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|&i, &j| {
        let by_real = all[i].re.total_cmp(&all[j].re);
        by_real.then(all[j].im.total_cmp(&all[i].im))
    });
    let mut values: Vec<Complex64> = order.iter().map(|&i| all[i]).collect();
    range::scale(&mut values, back);
    if !vectors {
        return Ok(Eigen {
            values,
            vectors: Vec::new(),
        });
    }
    let columns = found.U();
    let row = |i| order.iter().map(move |&j| columns[(i, j)]);
    let mut vectors: Vec<Complex64> = (0..n).flat_map(row).collect();
    for (column, &of) in order.iter().enumerate() {
        if !normalise(&mut vectors, column, n) {
            let null = null_vector(&a, n, all[of])?;
            let elements = vectors.iter_mut().skip(column).step_by(n);
            elements.zip(null).for_each(|(x, null)| *x = null);
        }
    }
    turn(&mut vectors, n);
    Ok(Eigen { values, vectors })
}

/// Gives a column the length 1. Its elements may be huge if eigenvalues are equal. Returns whether they are of use.
fn normalise(vectors: &mut [Complex64], column: usize, n: usize) -> bool {
    let largest = vectors.iter().skip(column).step_by(n);
    let unit = range::unit(largest.map(|x| x.l1_norm()).fold(0.0, f64::max));
    let elements = vectors.iter_mut().skip(column).step_by(n);
    elements.for_each(|x| *x *= unit);
    let squares = vectors.iter().skip(column).step_by(n);
    let length = squares.map(Complex64::norm_sqr).sum::<f64>().sqrt();
    let elements = vectors.iter_mut().skip(column).step_by(n);
    elements.for_each(|x| *x /= length);
    length.is_finite() && length > 0.0
}

/// The vector of length 1 that a matrix less an eigenvalue makes smallest.
fn null_vector<T: Number>(
    a: &[T],
    n: usize,
    value: Complex64,
) -> Result<impl Iterator<Item = Complex64>, NoConvergence> {
    let element = |(at, x): (usize, &T)| {
        let x = Complex64::new(T::real_part_impl(x), T::imag_part_impl(x));
        if at / n == at % n { x - value } else { x }
    };
    let shifted: Vec<Complex64> = a.iter().enumerate().map(element).collect();
    let found = svd::svd(&shifted, n, n, Vectors::Reduced)?;
    let last = found.vh.into_iter().skip((n - 1) * n);
    Ok(last.map(|x| x.conj()))
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
