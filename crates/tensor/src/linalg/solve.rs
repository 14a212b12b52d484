//! Systems of equations, inverses, determinants.

use rustorch_ir::OpError;
use rustorch_ir::ops::{Determinant, LdlSolve, LogDeterminant, Scatter, SolveTriangular};
use rustorch_macros::track_calls;

use super::factors::{lu_of, permutation};
use super::{adjoint, batch, broadcast, sizes, square};
use crate::Tensor;
use crate::error::{RusTorchResult, require};

/// The solution `X` of `A·X = B` or, with `left` false, `X·A = B`, of triangular `A` `[…, n, n]`, whose
/// other triangle is not read; with `unitriangular` neither is its diagonal, which is 1.
///
/// # Errors
/// Shapes that do not fit; other dtypes than one of floats or complex numbers.
#[track_calls(linalg)]
pub fn solve_triangular(
    a: &Tensor,
    b: &Tensor,
    upper: bool,
    left: bool,
    unitriangular: bool,
) -> RusTorchResult<Tensor> {
    triangular(
        "linalg.solve_triangular",
        a,
        b,
        [upper, left, unitriangular],
    )
}

fn triangular(
    name: &'static str,
    a: &Tensor,
    b: &Tensor,
    [upper, left, unitriangular]: [bool; 3],
) -> RusTorchResult<Tensor> {
    square(name, a)?;
    sizes(name, b)?;
    let [a, b] = broadcast(name, a, b)?;
    match left {
        true => {
            let op = SolveTriangular {
                upper,
                unitriangular,
            };
            Tensor::apply(name, op, &[&a, &b])
        }
        // The transposed equation.
        false => {
            let op = SolveTriangular {
                upper: !upper,
                unitriangular,
            };
            let [a, b] = [a.transpose(-2, -1)?, b.transpose(-2, -1)?];
            Tensor::apply(name, op, &[&a, &b])?.transpose(-2, -1)
        }
    }
}

/// The solution `X` of `A·X = B` or, with `left` false, `X·A = B`, of square `A` `[…, n, n]`. `B` is
/// `[…, n, k]`, or vectors `[…, n]` where that is `A`'s shape without the last dimension.
///
/// # Errors
/// Shapes that do not fit; other dtypes than one of floats or complex numbers; when computed, a
/// singular matrix.
#[track_calls(linalg)]
pub fn solve(a: &Tensor, b: &Tensor, left: bool) -> RusTorchResult<Tensor> {
    let (x, _) = solution("linalg.solve", a, b, left, true)?;
    Ok(x)
}

/// [`solve`], and 0 or which pivot, from 1, is 0, `i32`, for each matrix, which is an error only with
/// `check_errors`.
///
/// # Errors
/// As [`solve`].
#[track_calls(linalg)]
pub fn solve_ex(
    a: &Tensor,
    b: &Tensor,
    left: bool,
    check_errors: bool,
) -> RusTorchResult<(Tensor, Tensor)> {
    solution("linalg.solve_ex", a, b, left, check_errors)
}

fn solution(
    name: &'static str,
    a: &Tensor,
    b: &Tensor,
    left: bool,
    check: bool,
) -> RusTorchResult<(Tensor, Tensor)> {
    square(name, a)?;
    let is_vector =
        b.rank() == 1 || (b.rank() + 1 == a.rank() && b.shape() == &a.shape()[..b.rank()]);
    require(name, left || !is_vector, "left, of vectors", "right")?;
    let matrix = if is_vector {
        b.unsqueeze(-1)?
    } else {
        b.clone()
    };
    let a = if left {
        a.clone()
    } else {
        a.transpose(-2, -1)?
    };
    let matrix = if left {
        matrix
    } else {
        matrix.transpose(-2, -1)?
    };
    let [lu, pivots, info] = lu_of(name, &a, check)?;
    let x = by_factors(name, &lu, &pivots, &matrix)?;
    let x = if left { x } else { x.transpose(-2, -1)? };
    Ok((if is_vector { x.squeeze(-1)? } else { x }, info))
}

/// The solution of `A·X = B` by the factors of `A`.
fn by_factors(
    name: &'static str,
    lu: &Tensor,
    pivots: &Tensor,
    b: &Tensor,
) -> RusTorchResult<Tensor> {
    let n = square(name, lu)?;
    let [rows, columns] = sizes(name, b)?;
    let got = format_args!("{} and {}", lu.ty(), b.ty());
    require(name, rows == n, "as many rows as the matrices have", got)?;
    let rows = permutation(name, pivots, n)?.unsqueeze(-1)?;
    let [rows, b] = broadcast(name, &rows, b)?;
    let rows = rows.expand(&[batch(&b), &[n, columns]].concat()[..])?;
    let y = triangular(name, lu, &b.gather(-2, &rows)?, [false, true, true])?;
    triangular(name, lu, &y, [true, true, false])
}

/// The solution `X` of `A·X = B`, by what [`ldl_factor`](super::ldl_factor) gives of `A`.
///
/// # Errors
/// Shapes or dtypes that do not fit; when computed, pivots that are no rows.
#[track_calls(linalg)]
pub fn ldl_solve(
    factors: &Tensor,
    pivots: &Tensor,
    b: &Tensor,
    hermitian: bool,
) -> RusTorchResult<Tensor> {
    const NAME: &str = "linalg.ldl_solve";
    sizes(NAME, factors)?;
    sizes(NAME, b)?;
    let expected = "a pivot for each row of the matrices";
    let is_each = pivots.shape() == &factors.shape()[..factors.rank() - 1];
    require(NAME, is_each, expected, pivots.ty())?;
    let [factors, b] = broadcast(NAME, factors, b)?;
    let pivots = pivots.expand(&factors.shape()[..factors.rank() - 1])?;
    Tensor::apply(NAME, LdlSolve { hermitian }, &[&factors, &pivots, &b])
}

/// The solution `X` of `A·X = B` or, with `left` false, `X·A = B`, by what
/// [`lu_factor`](super::lu_factor) gives of `A`; with `adjoint` of `Aᴴ` in place of `A`.
///
/// # Errors
/// Shapes or dtypes that do not fit; when computed, pivots that are no rows.
#[track_calls(linalg)]
pub fn lu_solve(
    lu: &Tensor,
    pivots: &Tensor,
    b: &Tensor,
    left: bool,
    adjoint: bool,
) -> RusTorchResult<Tensor> {
    factors_solve("linalg.lu_solve", lu, pivots, b, left, adjoint)
}

fn factors_solve(
    name: &'static str,
    lu: &Tensor,
    pivots: &Tensor,
    b: &Tensor,
    left: bool,
    of_adjoint: bool,
) -> RusTorchResult<Tensor> {
    let n = square(name, lu)?;
    sizes(name, b)?;
    let is_each = pivots.shape() == &lu.shape()[..lu.rank() - 1];
    require(
        name,
        is_each,
        "a pivot for each row of the matrices",
        pivots.ty(),
    )?;
    match (left, of_adjoint) {
        (true, false) => by_factors(name, lu, pivots, b),
        // (X·A)ᴴ = Aᴴ·Xᴴ, and the other way round.
        (false, of_adjoint) => {
            let x = factors_solve(name, lu, pivots, &adjoint(b)?, true, !of_adjoint)?;
            adjoint(&x)
        }
        // Aᴴ = Uᴴ·Lᴴ·P.
        (true, true) => {
            let factors = adjoint(lu)?;
            let y = triangular(name, &factors, b, [false, true, false])?;
            let y = triangular(name, &factors, &y, [true, true, true])?;
            let rows = permutation(name, pivots, n)?.unsqueeze(-1)?;
            let [rows, y] = broadcast(name, &rows, &y)?;
            let rows = rows.expand(y.shape())?;
            let op = Scatter {
                dim: y.rank() - 2,
                mode: rustorch_ir::ops::ScatterMode::Set,
            };
            Tensor::apply(name, op, &[&y, &rows, &y])
        }
    }
}

/// The inverses of square matrices.
///
/// # Errors
/// Other than square matrices of floats or complex numbers; when computed, a singular one.
#[track_calls(linalg)]
pub fn inv(a: &Tensor) -> RusTorchResult<Tensor> {
    inverse("linalg.inv", a)
}

pub(super) fn inverse(name: &'static str, a: &Tensor) -> RusTorchResult<Tensor> {
    let (x, _) = inverse_and_info(name, a, true)?;
    Ok(x)
}

/// [`inv`], and 0 or which pivot, from 1, is 0, `i32`, for each matrix, which is an error only with
/// `check_errors`.
///
/// # Errors
/// As [`inv`].
#[track_calls(linalg)]
pub fn inv_ex(a: &Tensor, check_errors: bool) -> RusTorchResult<(Tensor, Tensor)> {
    inverse_and_info("linalg.inv_ex", a, check_errors)
}

fn inverse_and_info(
    name: &'static str,
    a: &Tensor,
    check: bool,
) -> RusTorchResult<(Tensor, Tensor)> {
    let one = Tensor::eye(square(name, a)?, a.dtype())?;
    let [lu, pivots, info] = lu_of(name, a, check)?;
    Ok((by_factors(name, &lu, &pivots, &one)?, info))
}

/// The determinants of square matrices: 0 of singular ones, whose gradient is that of a polynomial, too.
///
/// # Errors
/// Other than square matrices of floats or complex numbers.
#[track_calls(linalg)]
pub fn det(a: &Tensor) -> RusTorchResult<Tensor> {
    Tensor::apply("linalg.det", Determinant, &[a])
}

/// Sign, or phase, and logarithm of the modulus of the determinants of square matrices: 0 and −∞ of
/// singular ones.
///
/// # Errors
/// Other than square matrices of floats or complex numbers.
#[track_calls(linalg)]
pub fn slogdet(a: &Tensor) -> RusTorchResult<(Tensor, Tensor)> {
    logarithm("linalg.slogdet", a)
}

fn logarithm(name: &'static str, a: &Tensor) -> RusTorchResult<(Tensor, Tensor)> {
    let [sign, log] = Tensor::apply_all(name, LogDeterminant, &[a])?;
    Ok((sign, log))
}

/// Square matrices multiplied `n` times by themselves; their inverses where `n` is negative.
///
/// # Errors
/// Other than square matrices; of a negative power as [`inv`].
#[track_calls(linalg)]
pub fn matrix_power(a: &Tensor, n: i64) -> RusTorchResult<Tensor> {
    const NAME: &str = "linalg.matrix_power";
    let size = square(NAME, a)?;
    let mut base = match n {
        ..0 => inverse(NAME, a)?,
        _ => a.clone(),
    };
    let mut left = n.unsigned_abs();
    let mut power: Option<Tensor> = None;
    while left > 0 {
        if left % 2 == 1 {
            power = Some(match power {
                None => base.clone(),
                Some(power) => power.matmul(&base)?,
            });
        }
        left /= 2;
        if left > 0 {
            base = base.matmul(&base)?;
        }
    }
    match power {
        Some(power) => Ok(power),
        None => Tensor::eye(size, a.dtype())?
            .expand(a.shape())?
            .contiguous(),
    }
}

/// The inverse of a tensor as a map from its last dimensions to its first `ind`, whose sizes have the
/// same product.
///
/// # Errors
/// Sizes other than these; as [`inv`].
#[track_calls(linalg)]
pub fn tensorinv(a: &Tensor, ind: usize) -> RusTorchResult<Tensor> {
    const NAME: &str = "linalg.tensorinv";
    let fits = ind > 0 && ind <= a.rank();
    require(
        NAME,
        fits,
        "a number of dimensions of the tensor, at least 1",
        ind,
    )?;
    let (to, from) = a.shape().split_at(ind);
    let (rows, columns): (usize, usize) = (to.iter().product(), from.iter().product());
    let expected = format_args!("first {ind} sizes and others of one product");
    require(NAME, rows == columns, expected, a.ty())?;
    let shape = [from, to].concat();
    inverse(NAME, &a.reshape([rows, columns])?)?.reshape(&shape[..])
}

/// The solution `X` of `tensordot(A, X, X.rank()) = B`, after the dimensions `dims` of `A` were moved
/// behind the others.
///
/// # Errors
/// Sizes that do not fit; as [`solve`].
#[track_calls(linalg)]
pub fn tensorsolve(a: &Tensor, b: &Tensor, dims: Option<&[isize]>) -> RusTorchResult<Tensor> {
    const NAME: &str = "linalg.tensorsolve";
    let moved = match dims {
        None => a.clone(),
        Some(dims) => {
            let last =
                (dims.iter().map(|&d| a.dim(NAME, d))).collect::<RusTorchResult<Vec<_>>>()?;
            let first = (0..a.rank()).filter(|d| !last.contains(d));
            let order: Vec<isize> = first
                .chain(last.iter().copied())
                .map(|d| d as isize)
                .collect();
            a.permute(&order)?
        }
    };
    let shape = moved.shape();
    let unfit = || {
        OpError::new(
            NAME,
            "sizes that fit each other",
            format!("{} and {}", a.ty(), b.ty()),
        )
    };
    let solution = shape.get(b.rank()..).ok_or_else(unfit)?;
    let columns: usize = solution.iter().product();
    require(NAME, columns == b.numel(), unfit().expected, unfit().got)?;
    let a = moved.reshape([b.numel(), columns])?;
    let (x, _) = self::solution(NAME, &a, &b.reshape([b.numel()])?, true, true)?;
    x.reshape(solution)
}

#[track_calls]
impl Tensor {
    /// The solution `X` of `A·X = self`, of which this is given the Cholesky factor: lower, or upper,
    /// triangular.
    ///
    /// # Errors
    /// Shapes that do not fit; other dtypes than one of floats or complex numbers.
    pub fn cholesky_solve(&self, factor: &Self, upper: bool) -> RusTorchResult<Self> {
        const NAME: &str = "cholesky_solve";
        sizes(NAME, factor)?;
        let [lower, raised] = match upper {
            true => [adjoint(factor)?, factor.clone()],
            false => [factor.clone(), adjoint(factor)?],
        };
        let y = triangular(NAME, &lower, self, [false, true, false])?;
        triangular(NAME, &raised, &y, [true, true, false])
    }

    /// The inverse of the matrices whose Cholesky factors, lower or upper triangular, these are.
    ///
    /// # Errors
    /// Other than square matrices of floats or complex numbers.
    pub fn cholesky_inverse(&self, upper: bool) -> RusTorchResult<Self> {
        let n = square("cholesky_inverse", self)?;
        let one = Self::eye(n, self.dtype())?.expand(self.shape())?;
        one.cholesky_solve(self, upper)
    }

    /// [`solve_triangular`] of `A·X = self`, or of `Aᵀ`, as `torch.triangular_solve`: the solution,
    /// and `A`.
    ///
    /// # Errors
    /// As [`solve_triangular`].
    pub fn triangular_solve(
        &self,
        a: &Self,
        upper: bool,
        transpose: bool,
        unitriangular: bool,
    ) -> RusTorchResult<(Self, Self)> {
        const NAME: &str = "triangular_solve";
        square(NAME, a)?;
        let turned = if transpose {
            a.transpose(-2, -1)?
        } else {
            a.clone()
        };
        let form = [upper != transpose, true, unitriangular];
        Ok((triangular(NAME, &turned, self, form)?, a.clone()))
    }

    /// [`lu_solve`] of `A·X = self`.
    ///
    /// # Errors
    /// As [`lu_solve`].
    pub fn lu_solve(&self, lu: &Self, pivots: &Self) -> RusTorchResult<Self> {
        factors_solve("lu_solve", lu, pivots, self, true, false)
    }

    /// [`linalg::det`](det).
    ///
    /// # Errors
    /// As [`linalg::det`](det).
    pub fn det(&self) -> RusTorchResult<Self> {
        det(self)
    }

    /// [`linalg::slogdet`](slogdet).
    ///
    /// # Errors
    /// As [`linalg::slogdet`](slogdet).
    pub fn slogdet(&self) -> RusTorchResult<(Self, Self)> {
        slogdet(self)
    }

    /// [`linalg::inv`](inv).
    ///
    /// # Errors
    /// As [`linalg::inv`](inv).
    pub fn inverse(&self) -> RusTorchResult<Self> {
        inverse("inverse", self)
    }

    /// The logarithm of the determinants of square matrices: NaN where they are negative.
    ///
    /// # Errors
    /// Other than square matrices of floats or complex numbers.
    pub fn logdet(&self) -> RusTorchResult<Self> {
        const NAME: &str = "logdet";
        let (sign, log) = logarithm(NAME, self)?;
        match self.dtype().is_complex() {
            true => sign.log()?.add(&log),
            false => Self::where_(&sign.lt(0)?, f64::NAN, &log)?.cast(NAME, self.dtype()),
        }
    }
}
