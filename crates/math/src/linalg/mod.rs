//! Factorisations of dense matrices, in double precision, through [faer](https://docs.rs/faer).
//!
//! Matrices are slices in row-major order. Mathematics leaves some things open: signs of reflections,
//! phases of vectors, order of eigenvalues. They are settled here, as in LAPACK if it has a rule, so
//! that answers can be compared.

mod eigen;
mod exponential;
mod factors;
mod ldl;
mod lu;
mod phase;
mod range;
mod reflections;
mod svd;
mod triangular;

use std::ops::Neg;

use faer::traits::ComplexField;
use faer::{MatMut, MatRef};
use num_complex::Complex64;
use num_traits::NumAssign;

/// An iteration did not converge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoConvergence;

/// Factors to compute beside the values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Vectors {
    /// None.
    No,
    /// One for each value.
    Reduced,
    /// A whole basis.
    Full,
}

/// The triangle of a matrix that is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Triangle {
    /// The upper, not the lower one?
    pub upper: bool,
    /// Whether its diagonal is taken to be 1.
    pub unit: bool,
}

/// Pivots of the factorisation of a symmetric or Hermitian matrix.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ldl {
    /// For each row, the 0-based row that it was exchanged with; both rows of a block of 2 × 2 have
    /// the negative of the second's.
    pub pivots: Vec<i32>,
    /// The first block that is 0, from 0.
    pub zero: Option<usize>,
}

/// Singular values, largest first, with the vectors that were asked for.
#[derive(Clone, PartialEq, Debug)]
pub struct Svd<T> {
    /// Left vectors `[m, k]` or `[m, m]`; empty if not asked for.
    pub u: Vec<T>,
    /// Values `[k]`, `k` the smaller size.
    pub s: Vec<f64>,
    /// Right vectors, transposed and conjugated: `[k, n]` or `[n, n]`.
    pub vh: Vec<T>,
}

/// Eigenvalues with the vectors, if they were asked for.
#[derive(Clone, PartialEq, Debug)]
pub struct Eigen<W, V> {
    /// Values `[n]`.
    pub values: Vec<W>,
    /// Vectors of length 1, as columns `[n, n]`; empty if not asked for.
    pub vectors: Vec<V>,
}

/// The numbers that matrices are made of: `f64` and `Complex64`.
pub trait Field: Copy + Send + Sync + 'static {
    /// The lower factor `L` of `A = L·Lᴴ`, in place of `A` `[n, n]`. Only the lower triangle is read.
    fn cholesky(a: &mut [Self], n: usize) -> Option<usize>;

    /// `P·A = L·U` by partial pivoting, `L` (without its diagonal of 1) and `U` in place of `A`
    /// `[m, n]`; of singular matrices, too. Gives the row, from 0, that each row was exchanged with.
    fn lu(a: &mut [Self], m: usize, n: usize) -> Vec<usize>;

    /// `P·A·Pᵀ = L·D·Lᵀ` of a symmetric `A` `[n, n]`, or `L·D·Lᴴ` of a Hermitian one. Only the lower
    /// triangle is read. `L` (without its diagonal of 1) and `D` take its place, with 0 above; `D` has
    /// blocks of 1 × 1 and 2 × 2.
    fn ldl(a: &mut [Self], n: usize, hermitian: bool) -> Ldl;

    /// Solves `A·X = B` in place of `B` `[n, k]`, by the factors and pivots that [`Field::ldl`] gives
    /// of `A`. `None` if a pivot is not a row.
    fn ldl_solve(
        factors: Vec<Self>,
        pivots: &[i32],
        hermitian: bool,
        b: &mut [Self],
        sizes: [usize; 2],
    ) -> Option<()>;

    /// `A = Q·R` of `A` `[m, n]` by Householder's reflections as LAPACK's: `Q` `[m, k]` and `R`
    /// `[k, n]`, where `k` is the smaller size, or `m` if the basis is to be complete.
    fn qr(a: &[Self], m: usize, n: usize, complete: bool) -> (Vec<Self>, Vec<Self>);

    /// Householder's reflections of `A` `[m, n]` as in LAPACK's `geqrf`: `R` in the upper triangle,
    /// below it the vectors. Returns their factors `τ`, as many as the smaller size.
    fn reflections(a: &mut [Self], m: usize, n: usize) -> Vec<Self>;

    /// The first `n` columns of a product of reflections, in place of `a` `[m, n]`. The vectors of
    /// the reflections are below the diagonal of `a`. There are no more factors `tau` than columns.
    fn product_of_reflections(a: &mut [Self], m: usize, n: usize, tau: &[Self]);

    /// The singular value decomposition of `A` `[m, n]`. In each pair of vectors the left one has a
    /// [leading element](crate) that is real and positive.
    ///
    /// # Errors
    /// Fails if an element is not finite.
    fn svd(a: &[Self], m: usize, n: usize, vectors: Vectors) -> Result<Svd<Self>, NoConvergence>;

    /// Eigenvalues, smallest first, of a Hermitian matrix `[n, n]`. Only the lower triangle is read.
    ///
    /// # Errors
    /// Fails if an element is not finite.
    fn eigh(a: &[Self], n: usize, vectors: bool) -> Result<Eigen<f64, Self>, NoConvergence>;

    /// Eigenvalues of any square matrix `[n, n]`, by their real, then their imaginary part; of a
    /// real matrix's conjugate pairs that with the positive imaginary part first.
    ///
    /// # Errors
    /// Fails if an element is not finite.
    fn eig(
        a: &[Self],
        n: usize,
        vectors: bool,
    ) -> Result<Eigen<Complex64, Complex64>, NoConvergence>;

    /// Solves `A·X = B` of a triangular matrix `[n, n]` in place of `B` `[n, k]`.
    fn solve_triangular(a: &[Self], triangle: Triangle, b: &mut [Self], n: usize, k: usize);

    /// `eᴬ` in place of `A` `[n, n]`.
    fn exponential(a: &mut [Self], n: usize);
}

macro_rules! fields {
    ($($type:ty, $eig:path, $qr:path;)+) => {
        $(impl Field for $type {
            fn cholesky(a: &mut [Self], n: usize) -> Option<usize> {
                factors::cholesky(a, n)
            }

            fn lu(a: &mut [Self], m: usize, n: usize) -> Vec<usize> {
                lu::lu(a, m, n)
            }

            fn ldl(a: &mut [Self], n: usize, hermitian: bool) -> Ldl {
                ldl::factor(a, n, hermitian)
            }

            fn ldl_solve(
                factors: Vec<Self>,
                pivots: &[i32],
                hermitian: bool,
                b: &mut [Self],
                sizes: [usize; 2],
            ) -> Option<()> {
                ldl::solve(factors, pivots, hermitian, b, sizes)
            }

            fn qr(a: &[Self], m: usize, n: usize, complete: bool) -> (Vec<Self>, Vec<Self>) {
                $qr(a, m, n, complete)
            }

            fn reflections(a: &mut [Self], m: usize, n: usize) -> Vec<Self> {
                reflections::factor(a, m, n)
            }

            fn product_of_reflections(a: &mut [Self], m: usize, n: usize, tau: &[Self]) {
                reflections::product(a, m, n, tau);
            }

            fn svd(
                a: &[Self],
                m: usize,
                n: usize,
                vectors: Vectors,
            ) -> Result<Svd<Self>, NoConvergence> {
                svd::svd(a, m, n, vectors)
            }

            fn eigh(a: &[Self], n: usize, vectors: bool) -> Result<Eigen<f64, Self>, NoConvergence> {
                eigen::hermitian(a, n, vectors)
            }

            fn eig(
                a: &[Self],
                n: usize,
                vectors: bool,
            ) -> Result<Eigen<Complex64, Complex64>, NoConvergence> {
                eigen::general(a, n, vectors, $eig)
            }

            fn solve_triangular(a: &[Self], triangle: Triangle, b: &mut [Self], n: usize, k: usize) {
                triangular::solve(a, triangle, b, n, k);
            }

            fn exponential(a: &mut [Self], n: usize) {
                exponential::exponential(a, n);
            }
        })+
    };
}

fields! {
    f64, faer::linalg::solvers::Eigen::new_from_real, factors::qr;
    Complex64, faer::linalg::solvers::Eigen::new, reflections::qr;
}

/// Operations that the algorithms need of a [`Field`].
trait Number: ComplexField<Real = f64> + NumAssign + Neg<Output = Self> + Copy {}

impl<T: ComplexField<Real = f64> + NumAssign + Neg<Output = Self> + Copy> Number for T {}

/// A slice as a matrix of faer's.
fn matrix<T>(a: &[T], m: usize, n: usize) -> MatRef<'_, T> {
    MatRef::from_row_major_slice(a, m, n)
}

/// A slice as a matrix of faer's that is written to.
fn matrix_mut<T>(a: &mut [T], m: usize, n: usize) -> MatMut<'_, T> {
    MatMut::from_row_major_slice_mut(a, m, n)
}

/// The elements of a matrix in row-major order.
fn elements<T: Copy>(a: MatRef<'_, T>) -> Vec<T> {
    let row = |i| (0..a.ncols()).map(move |j| a[(i, j)]);
    (0..a.nrows()).flat_map(row).collect()
}

/// Drops the imaginary parts of a Hermitian matrix's diagonal, which LAPACK does not look at either.
fn real_diagonal<T: Number>(a: &mut [T], n: usize) {
    for x in a.iter_mut().step_by(n + 1) {
        *x = T::from_real_impl(&T::real_part_impl(x));
    }
}
