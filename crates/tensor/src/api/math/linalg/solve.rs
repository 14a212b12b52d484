//! Systems of equations, inverses, determinants.

use rustorch_ir::OpError;
use rustorch_ir::ops::{Determinant, LdlSolve, LogDeterminant, Scatter, SolveTriangular};
use rustorch_macros::track_calls;

use super::factors::{lu_of, permutation};
use super::{adjoint, batch, broadcast, sizes, square};
use crate::Tensor;
use crate::error::{RusTorchResult, require};

/// The solution `X` of `A·X = B`, or of `X·A = B` if `left` is false, for triangular `A`
/// `[…, n, n]`. The other triangle is not read. With `unitriangular` the diagonal counts as 1 and
/// is not read either.
///
/// # Errors
/// Fails for shapes that do not fit, or dtypes that are not the same float or complex dtype.
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

/// The solution `X` of `A·X = B`, or of `X·A = B` if `left` is false, for square `A` `[…, n, n]`.
/// `B` is `[…, n, k]`, or vectors `[…, n]` if that is `A`'s shape without the last dimension.
///
/// # Errors
/// Fails for shapes that do not fit, or dtypes that are not the same float or complex dtype.
/// Evaluation fails for a singular matrix.
#[track_calls(linalg)]
pub fn solve(a: &Tensor, b: &Tensor, left: bool) -> RusTorchResult<Tensor> {
    let (x, _) = solution("linalg.solve", a, b, left, true)?;
    Ok(x)
}

/// [`solve`] with a status for each matrix, `i32`: 0, or the 1-based index of a zero pivot. A
/// status other than 0 is an error only with `check_errors`.
///
/// # Errors
/// The same errors as [`solve`].
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

/// The solution `X` of `A·X = B`, by the results of [`ldl_factor`](super::ldl_factor) for `A`.
///
/// # Errors
/// Fails for shapes or dtypes that do not fit. Evaluation fails for pivots outside the rows.
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

/// The solution `X` of `A·X = B`, or of `X·A = B` if `left` is false, from the results of
/// [`lu_factor`](super::lu_factor) for `A`. With `adjoint`, `Aᴴ` takes the place of `A`.
///
/// # Errors
/// Fails for shapes or dtypes that do not fit. Evaluation fails for pivots outside the rows.
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
/// Fails for operands other than square matrices of floats or complex numbers. Evaluation fails for
/// a singular matrix.
#[track_calls(linalg)]
pub fn inv(a: &Tensor) -> RusTorchResult<Tensor> {
    inverse("linalg.inv", a)
}

pub(super) fn inverse(name: &'static str, a: &Tensor) -> RusTorchResult<Tensor> {
    let (x, _) = inverse_and_info(name, a, true)?;
    Ok(x)
}

/// [`inv`] with a status for each matrix, `i32`: 0, or the 1-based index of a zero pivot. A status
/// other than 0 is an error only with `check_errors`.
///
/// # Errors
/// The same errors as [`inv`].
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

/// The determinants of square matrices: 0 for singular ones, whose gradient is that of the
/// polynomial.
///
/// # Errors
/// Fails for operands other than square matrices of floats or complex numbers.
#[track_calls(linalg)]
pub fn det(a: &Tensor) -> RusTorchResult<Tensor> {
    Tensor::apply("linalg.det", Determinant, &[a])
}

/// Sign, or phase, and logarithm of the absolute determinants of square matrices: 0 and −∞ for
/// singular ones.
///
/// # Errors
/// Fails for operands other than square matrices of floats or complex numbers.
#[track_calls(linalg)]
pub fn slogdet(a: &Tensor) -> RusTorchResult<(Tensor, Tensor)> {
    logarithm("linalg.slogdet", a)
}

fn logarithm(name: &'static str, a: &Tensor) -> RusTorchResult<(Tensor, Tensor)> {
    let [sign, log] = Tensor::apply_all(name, LogDeterminant, &[a])?;
    Ok((sign, log))
}

/// Square matrices multiplied `n` times by themselves; their inverses if `n` is negative.
///
/// # Errors
/// Fails for operands other than square matrices. A negative power fails as [`inv`] does.
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

/// The inverse of a tensor, read as a map from its last dimensions to its first `ind`. Both have
/// the same product of sizes.
///
/// # Errors
/// Fails for unsupported sizes. Also the errors of [`inv`].
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
    let expected = format_args!("first {ind} sizes whose product equals that of the others");
    require(NAME, rows == columns, expected, a.ty())?;
    let shape = [from, to].concat();
    inverse(NAME, &a.reshape([rows, columns])?)?.reshape(&shape[..])
}

/// The solution `X` of `tensordot(A, X, X.rank()) = B`, after the dimensions `dims` of `A` are
/// moved to the end.
///
/// # Errors
/// Fails for sizes that do not fit. Also the errors of [`solve`].
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
            "sizes that match",
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
    /// The solution `X` of `A·X = self`, from the lower or upper triangular Cholesky factor of `A`.
    ///
    /// # Errors
    /// Fails for shapes that do not fit, or dtypes that are not the same float or complex dtype.
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

    /// The inverse of matrices, from their lower or upper triangular Cholesky factors.
    ///
    /// # Errors
    /// Fails for operands other than square matrices of floats or complex numbers.
    pub fn cholesky_inverse(&self, upper: bool) -> RusTorchResult<Self> {
        let n = square("cholesky_inverse", self)?;
        let one = Self::eye(n, self.dtype())?.expand(self.shape())?;
        one.cholesky_solve(self, upper)
    }

    /// [`solve_triangular`] of `A·X = self`, or of `Aᵀ`, as `torch.triangular_solve`. Returns the
    /// solution and `A`.
    ///
    /// # Errors
    /// The same errors as [`solve_triangular`].
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
    /// The same errors as [`lu_solve`].
    pub fn lu_solve(&self, lu: &Self, pivots: &Self) -> RusTorchResult<Self> {
        factors_solve("lu_solve", lu, pivots, self, true, false)
    }

    /// [`linalg::det`](det).
    ///
    /// # Errors
    /// The same errors as [`linalg::det`](det).
    pub fn det(&self) -> RusTorchResult<Self> {
        det(self)
    }

    /// [`linalg::slogdet`](slogdet).
    ///
    /// # Errors
    /// The same errors as [`linalg::slogdet`](slogdet).
    pub fn slogdet(&self) -> RusTorchResult<(Self, Self)> {
        slogdet(self)
    }

    /// [`linalg::inv`](inv).
    ///
    /// # Errors
    /// The same errors as [`linalg::inv`](inv).
    pub fn inverse(&self) -> RusTorchResult<Self> {
        inverse("inverse", self)
    }

    /// The logarithm of the determinants of square matrices: NaN if they are negative.
    ///
    /// # Errors
    /// Fails for operands other than square matrices of floats or complex numbers.
    pub fn logdet(&self) -> RusTorchResult<Self> {
        const NAME: &str = "logdet";
        let (sign, log) = logarithm(NAME, self)?;
        match self.dtype().is_complex() {
            true => sign.log()?.add(&log),
            false => Self::where_(&sign.lt(0)?, f64::NAN, &log)?.cast(NAME, self.dtype()),
        }
    }
}
