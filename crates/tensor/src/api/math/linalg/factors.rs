//! Factorisations.

use rustorch_ir::DType;
use rustorch_ir::ops::{
    Cholesky, Eig, Eigh, Geqrf, HouseholderProduct, Ldl, Lu, LuPivotsToPermutation, MatrixExp, Qr,
    Svd, SvdVectors,
};
use rustorch_macros::track_calls;

use super::{adjoint, batch, sizes};
use crate::Tensor;
use crate::error::{RusTorchResult, require};

/// The lower triangular `L` of a positive definite `A = L·Lᴴ`, or with `upper` the upper triangular
/// `U` of `A = Uᴴ·U`. Only that triangle of `A` is read.
///
/// # Errors
/// Fails for operands other than square matrices of floats or complex numbers. Evaluation fails for
/// a matrix that is not positive definite.
#[track_calls(linalg)]
pub fn cholesky(a: &Tensor, upper: bool) -> RusTorchResult<Tensor> {
    let (factor, _) = cholesky_of("linalg.cholesky", a, upper, true)?;
    Ok(factor)
}

/// [`cholesky`] with a status for each matrix, `i32`: 0, or the order of the first leading minor
/// that is not positive. With `check_errors` such a matrix is an error; otherwise its factor is
/// meaningless.
///
/// # Errors
/// The same errors as [`cholesky`].
#[track_calls(linalg)]
pub fn cholesky_ex(
    a: &Tensor,
    upper: bool,
    check_errors: bool,
) -> RusTorchResult<(Tensor, Tensor)> {
    cholesky_of("linalg.cholesky_ex", a, upper, check_errors)
}

fn cholesky_of(
    name: &'static str,
    a: &Tensor,
    upper: bool,
    check: bool,
) -> RusTorchResult<(Tensor, Tensor)> {
    sizes(name, a)?;
    let turned = |x: Tensor| if upper { adjoint(&x) } else { Ok(x) };
    let a = turned(a.clone())?;
    let [factor, info] = Tensor::apply_all(name, Cholesky { check }, &[&a])?;
    Ok((turned(factor)?, info))
}

/// The requested part of `Q·R`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum QrMode {
    /// `Q` `[…, m, k]` and `R` `[…, k, n]`, `k` being the smaller size.
    #[default]
    Reduced,
    /// `Q` `[…, m, m]` and `R` `[…, m, n]`.
    Complete,
    /// An empty `Q` and the reduced `R`.
    R,
}

/// The QR decomposition `A = Q·R` of matrices `[…, m, n]`: `Q` has orthonormal columns, and `R` is upper triangular.
///
/// # Errors
/// Fails for operands other than matrices of floats or complex numbers.
#[track_calls(linalg)]
pub fn qr(a: &Tensor, mode: QrMode) -> RusTorchResult<(Tensor, Tensor)> {
    let complete = mode == QrMode::Complete;
    let [q, r] = Tensor::apply_all("linalg.qr", Qr { complete }, &[a])?;
    match mode {
        QrMode::R => Ok((Tensor::zeros([0], a.dtype())?, r)),
        QrMode::Reduced | QrMode::Complete => Ok((q, r)),
    }
}

/// The singular value decomposition `A = U·diag(S)·Vh` of matrices `[…, m, n]`. `U` has orthonormal columns and `Vh`
/// orthonormal rows. `S` is real, largest values first. `U` and `Vh` have one vector for each singular value, or are
/// complete bases (`full_matrices`).
///
/// # Errors
/// Fails for operands other than matrices of floats or complex numbers. Evaluation fails for
/// elements that are not finite.
#[track_calls(linalg)]
pub fn svd(a: &Tensor, full_matrices: bool) -> RusTorchResult<(Tensor, Tensor, Tensor)> {
    let vectors = match full_matrices {
        true => SvdVectors::Full,
        false => SvdVectors::Reduced,
    };
    let [u, s, vh] = Tensor::apply_all("linalg.svd", Svd { vectors }, &[a])?;
    Ok((u, s, vh))
}

/// The singular values of matrices, largest first, `[…, k]`.
///
/// # Errors
/// The same errors as [`svd`].
#[track_calls(linalg)]
pub fn svdvals(a: &Tensor) -> RusTorchResult<Tensor> {
    singular_values("linalg.svdvals", a)
}

pub(super) fn singular_values(name: &'static str, a: &Tensor) -> RusTorchResult<Tensor> {
    let vectors = SvdVectors::No;
    Tensor::apply(name, Svd { vectors }, &[a])
}

/// Real eigenvalues, smallest first, and orthonormal eigenvectors, as columns, of Hermitian matrices. Only the
/// lower, or upper, triangle is read.
///
/// # Errors
/// Fails for operands other than square matrices of floats or complex numbers. Evaluation fails for
/// elements that are not finite.
#[track_calls(linalg)]
pub fn eigh(a: &Tensor, upper: bool) -> RusTorchResult<(Tensor, Tensor)> {
    const NAME: &str = "linalg.eigh";
    let a = lower(NAME, a, upper)?;
    let [values, vectors] = Tensor::apply_all(NAME, Eigh { vectors: true }, &[&a])?;
    Ok((values, vectors))
}

/// The eigenvalues of [`eigh`].
///
/// # Errors
/// The same errors as [`eigh`].
#[track_calls(linalg)]
pub fn eigvalsh(a: &Tensor, upper: bool) -> RusTorchResult<Tensor> {
    hermitian_values("linalg.eigvalsh", a, upper)
}

pub(super) fn hermitian_values(
    name: &'static str,
    a: &Tensor,
    upper: bool,
) -> RusTorchResult<Tensor> {
    let a = lower(name, a, upper)?;
    Tensor::apply(name, Eigh { vectors: false }, &[&a])
}

/// Hermitian matrices by their lower triangles.
fn lower(name: &'static str, a: &Tensor, upper: bool) -> RusTorchResult<Tensor> {
    sizes(name, a)?;
    if upper { adjoint(a) } else { Ok(a.clone()) }
}

/// Complex eigenvalues, ordered by real, then imaginary part, and eigenvectors of length 1 as
/// columns, of any square matrices.
///
/// # Errors
/// The same errors as [`eigh`].
#[track_calls(linalg)]
pub fn eig(a: &Tensor) -> RusTorchResult<(Tensor, Tensor)> {
    let [values, vectors] = Tensor::apply_all("linalg.eig", Eig { vectors: true }, &[a])?;
    Ok((values, vectors))
}

/// The eigenvalues of [`eig`].
///
/// # Errors
/// The same errors as [`eig`].
#[track_calls(linalg)]
pub fn eigvals(a: &Tensor) -> RusTorchResult<Tensor> {
    Tensor::apply("linalg.eigvals", Eig { vectors: false }, &[a])
}

/// `P·A·Pᵀ = L·D·Lᵀ` of symmetric matrices `[…, n, n]`, or `L·D·Lᴴ` of Hermitian ones. Only the lower triangle
/// is read. `L` without its unit diagonal and `D`, with blocks of 1 × 1 and 2 × 2, share one `[…, n, n]`. The
/// pivots are `i32` `[…, n]`, as LAPACK's `sytrf` has them: each is the 1-based row that its row was exchanged
/// with. For a block of 2 × 2, both pivots are the negative of the second row's.
///
/// # Errors
/// Fails for operands other than square matrices of floats or complex numbers. Evaluation fails for
/// a zero block in `D`.
#[track_calls(linalg)]
pub fn ldl_factor(a: &Tensor, hermitian: bool) -> RusTorchResult<(Tensor, Tensor)> {
    let check = true;
    let op = Ldl { hermitian, check };
    let [factors, pivots, _] = Tensor::apply_all("linalg.ldl_factor", op, &[a])?;
    Ok((factors, pivots))
}

/// [`ldl_factor`] with a status for each matrix, `i32`: 0, or the 1-based index of a zero block. A
/// status other than 0 is an error only with `check_errors`.
///
/// # Errors
/// The same errors as [`ldl_factor`].
#[track_calls(linalg)]
pub fn ldl_factor_ex(
    a: &Tensor,
    hermitian: bool,
    check_errors: bool,
) -> RusTorchResult<(Tensor, Tensor, Tensor)> {
    let check = check_errors;
    let op = Ldl { hermitian, check };
    let [factors, pivots, info] = Tensor::apply_all("linalg.ldl_factor_ex", op, &[a])?;
    Ok((factors, pivots, info))
}

/// `P·A = L·U` of matrices `[…, m, n]`: `L` without its unit diagonal, and `U`, in one `[…, m, n]`.
/// The pivots are the 1-based rows that each row was exchanged with, `i32` `[…, k]`.
///
/// # Errors
/// Fails for operands other than matrices of floats or complex numbers. Evaluation fails for a
/// pivot of 0.
#[track_calls(linalg)]
pub fn lu_factor(a: &Tensor) -> RusTorchResult<(Tensor, Tensor)> {
    let [lu, pivots, _] = lu_of("linalg.lu_factor", a, true)?;
    Ok((lu, pivots))
}

/// [`lu_factor`] with a status for each matrix, `i32`: 0, or the 1-based index of a zero pivot. A
/// status other than 0 is an error only with `check_errors`.
///
/// # Errors
/// The same errors as [`lu_factor`].
#[track_calls(linalg)]
pub fn lu_factor_ex(a: &Tensor, check_errors: bool) -> RusTorchResult<(Tensor, Tensor, Tensor)> {
    let [lu, pivots, info] = lu_of("linalg.lu_factor_ex", a, check_errors)?;
    Ok((lu, pivots, info))
}

pub(super) fn lu_of(name: &'static str, a: &Tensor, check: bool) -> RusTorchResult<[Tensor; 3]> {
    Tensor::apply_all(name, Lu { check }, &[a])
}

/// The LU decomposition `A = P·L·U` of matrices `[…, m, n]`: a permutation `[…, m, m]`, a lower triangle with a
/// diagonal of 1 `[…, m, k]`, an upper triangle `[…, k, n]`.
///
/// # Errors
/// Fails for operands other than matrices of floats or complex numbers.
#[track_calls(linalg)]
pub fn lu(a: &Tensor) -> RusTorchResult<(Tensor, Tensor, Tensor)> {
    const NAME: &str = "linalg.lu";
    let [lu, pivots, _] = lu_of(NAME, a, false)?;
    unpack(NAME, &lu, &pivots)
}

fn unpack(
    name: &'static str,
    lu: &Tensor,
    pivots: &Tensor,
) -> RusTorchResult<(Tensor, Tensor, Tensor)> {
    let [m, n] = sizes(name, lu)?;
    let k = m.min(n);
    let wanted = [batch(lu), &[k]].concat();
    let expected = format_args!("pivots {wanted:?}");
    require(name, *pivots.shape() == wanted[..], expected, pivots.ty())?;
    let permutation = permutation(name, pivots, m)?.unsqueeze(-2)?;
    let row = Tensor::arange_with(0, m as i64, 1, DType::I64)?.unsqueeze(1)?;
    let p = permutation.eq(&row)?.cast(name, lu.dtype())?;
    let l = lu.narrow(-1, 0, k)?.tril(-1)?;
    let one = Tensor::arange_with(0, k as i64, 1, DType::I64)?.eq(&row)?;
    let l = l.add(&one.cast(name, lu.dtype())?)?;
    let u = lu.narrow(-2, 0, k)?.triu(0)?;
    Ok((p, l, u))
}

/// The row that each row becomes when rows are exchanged with pivots.
pub(super) fn permutation(
    name: &'static str,
    pivots: &Tensor,
    rows: usize,
) -> RusTorchResult<Tensor> {
    Tensor::apply(name, LuPivotsToPermutation { rows }, &[pivots])
}

/// The matrix exponential of square matrices.
///
/// # Errors
/// Fails for operands other than square matrices of floats or complex numbers.
#[track_calls(linalg)]
pub fn matrix_exp(a: &Tensor) -> RusTorchResult<Tensor> {
    const NAME: &str = "linalg.matrix_exp";
    match a.dtype() {
        half @ (DType::F16 | DType::BF16) => {
            let wide = a.cast(NAME, DType::F32)?;
            Tensor::apply(NAME, MatrixExp, &[&wide])?.cast(NAME, half)
        }
        _ => Tensor::apply(NAME, MatrixExp, &[a]),
    }
}

/// The Hermitian square root `S` (`S·S = A`) of Hermitian matrices without negative eigenvalues.
/// Only the lower triangle is read.
///
/// # Errors
/// The same errors as [`eigh`].
#[track_calls(linalg)]
pub fn matrix_sqrth(a: &Tensor) -> RusTorchResult<Tensor> {
    const NAME: &str = "linalg.matrix_sqrth";
    let [values, vectors] = Tensor::apply_all(NAME, Eigh { vectors: true }, &[a])?;
    let roots = values.sqrt()?.unsqueeze(-2)?;
    vectors.mul(&roots)?.matmul(&adjoint(&vectors)?)
}

/// The polar decomposition `A = U·P` of matrices `[…, m, n]`. `U` `[…, m, n]` has orthonormal columns or rows. `P` `[…,
/// n, n]` is Hermitian, without negative eigenvalues.
///
/// # Errors
/// The same errors as [`svd`].
#[track_calls(linalg)]
pub fn polar(a: &Tensor) -> RusTorchResult<(Tensor, Tensor)> {
    const NAME: &str = "linalg.polar";
    let vectors = SvdVectors::Reduced;
    let [u, s, vh] = Tensor::apply_all(NAME, Svd { vectors }, &[a])?;
    let stretch = adjoint(&vh)?.mul(&s.unsqueeze(-2)?)?.matmul(&vh)?;
    Ok((u.matmul(&vh)?, stretch))
}

/// The first `n` columns of the product of [`Tensor::geqrf`]'s reflections: `[…, m, n]` with
/// factors `tau` `[…, k]`.
///
/// # Errors
/// Fails for more columns than rows, or more reflections than columns. Also fails if leading
/// dimensions or dtypes differ.
#[track_calls(linalg)]
#[doc(alias = "orgqr")]
pub fn householder_product(a: &Tensor, tau: &Tensor) -> RusTorchResult<Tensor> {
    Tensor::apply("linalg.householder_product", HouseholderProduct, &[a, tau])
}

#[track_calls]
impl Tensor {
    /// [`linalg::qr`](qr) in LAPACK's form. `R` is the upper triangle. Below it are the reflection
    /// vectors without their first element, which is 1. The second result holds the reflections'
    /// factors.
    ///
    /// # Errors
    /// Fails for operands other than matrices of floats or complex numbers.
    pub fn geqrf(&self) -> RusTorchResult<(Self, Self)> {
        let [a, tau] = Self::apply_all("geqrf", Geqrf, &[self])?;
        Ok((a, tau))
    }

    /// `Q·other`, or `other·Q` if `left` is false. `Q` is the whole product of [`Tensor::geqrf`]'s
    /// reflections, or `Qᴴ` with `transpose`.
    ///
    /// # Errors
    /// Fails for sizes or dtypes that do not fit.
    pub fn ormqr(
        &self,
        tau: &Self,
        other: &Self,
        left: bool,
        transpose: bool,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "ormqr";
        let [m, n] = sizes(NAME, self)?;
        let [rows, columns] = sizes(NAME, other)?;
        let along = if left { rows } else { columns };
        let fits = m == along
            && batch(other) == batch(self)
            && *tau.shape() == [batch(self), &[m.min(n)]].concat()[..];
        let got = format_args!("{}, {} and {}", self.ty(), tau.ty(), other.ty());
        let expected =
            "reflections [.., m, n], as many tau, and other [.., m, k], or [.., k, m] on the left";
        require(NAME, fits, expected, got)?;
        // As many columns as rows, whose further ones no reflection belongs to.
        let zeros = [batch(self), &[m, m.saturating_sub(n)]].concat();
        let zeros = Self::zeros(&zeros, self.dtype())?;
        let whole = Self::cat(&[&self.narrow(-1, 0, m.min(n))?, &zeros], -1)?;
        let q = Self::apply(NAME, HouseholderProduct, &[&whole, tau])?;
        let q = if transpose { adjoint(&q)? } else { q };
        match left {
            true => q.matmul(other),
            false => other.matmul(&q),
        }
    }

    /// [`linalg::svd`](svd) with the result of `torch.svd`: `V`, not `Vh`. `some` is the opposite
    /// of `full_matrices`.
    ///
    /// # Errors
    /// The same errors as [`svd`].
    pub fn svd(&self, some: bool) -> RusTorchResult<(Self, Self, Self)> {
        let (u, s, vh) = svd(self, !some)?;
        Ok((u, s, adjoint(&vh)?))
    }

    /// `P`, `L` and `U` from the results of [`lu_factor`].
    ///
    /// # Errors
    /// Fails for unsupported shapes or dtypes. Evaluation fails for pivots outside the rows.
    pub fn lu_unpack(&self, pivots: &Self) -> RusTorchResult<(Self, Self, Self)> {
        unpack("lu_unpack", self, pivots)
    }
}
