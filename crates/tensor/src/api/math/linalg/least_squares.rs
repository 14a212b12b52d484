//! Results of singular values: rank, pseudo-inverse, least squares.

use rustorch_ir::ops::PseudoInverse;
use rustorch_ir::{DType, broadcast_shapes};
use rustorch_macros::track_calls;

use super::factors::{hermitian_values, singular_values, svd};
use super::{adjoint, batch, broadcast, sizes, square};
use crate::Tensor;
use crate::error::{RusTorchResult, require};

/// The bound below which singular values count as 0: `max(atol, rtol · largest)`.
#[derive(Clone, Debug, Default)]
pub struct Tolerance {
    /// Absolute, a number or one for each matrix; 0 by default.
    pub atol: Option<Tensor>,
    /// Relative. By default 0 if `atol` is given, else the larger matrix size times the dtype's
    /// epsilon.
    pub rtol: Option<Tensor>,
}

impl Tolerance {
    /// Bounds for matrices whose values have the dtype `real`, `[…, 1]` or `[1]`: an absolute one, and one that is
    /// multiplied by the largest value. The larger one counts.
    fn bounds(&self, name: &'static str, a: &Tensor, real: DType) -> RusTorchResult<[Tensor; 2]> {
        let [m, n] = sizes(name, a)?;
        let epsilon = match real {
            DType::F64 => f64::EPSILON,
            _ => f64::from(f32::EPSILON),
        };
        let default = m.max(n) as f64 * epsilon;
        let given = |x: &Tensor| x.cast(name, real)?.unsqueeze(-1);
        let number = |x: f64| Tensor::full([1], x, real);
        Ok(match (&self.atol, &self.rtol) {
            (None, None) => [number(0.0)?, number(default)?],
            (None, Some(rtol)) => [number(0.0)?, given(rtol)?],
            // An absolute one that is 0 leaves the choice to the default of the relative one.
            (Some(atol), None) => {
                let absolute = given(atol)?;
                let relative = Tensor::where_(&absolute.gt(0)?, 0.0, &number(default)?)?;
                [absolute, relative]
            }
            (Some(atol), Some(rtol)) => [given(atol)?, given(rtol)?],
        })
    }

    /// The bound for each matrix `[…, 1]`, whose values' moduli are `[…, k]`.
    fn bound(&self, name: &'static str, a: &Tensor, values: &Tensor) -> RusTorchResult<Tensor> {
        let [absolute, relative] = self.bounds(name, a, values.dtype())?;
        let largest = match values.shape().last() {
            Some(0) | None => Tensor::zeros([batch(a), &[1]].concat(), values.dtype())?,
            Some(_) => values.max(-1, true)?,
        };
        absolute.clamp(&relative.mul(&largest)?, f64::INFINITY)
    }
}

/// The rank of matrices, `i64`: the number of singular values above the bound.
///
/// # Errors
/// Fails for operands other than matrices of floats or complex numbers, or tolerances that do not
/// broadcast.
#[track_calls(linalg)]
pub fn matrix_rank(a: &Tensor, tolerance: &Tolerance) -> RusTorchResult<Tensor> {
    const NAME: &str = "linalg.matrix_rank";
    sizes(NAME, a)?;
    rank(NAME, a, &singular_values(NAME, a)?, tolerance)
}

/// [`matrix_rank`] of Hermitian matrices, by the moduli of their eigenvalues.
///
/// # Errors
/// The same errors as [`matrix_rank`]. Also fails for matrices that are not square.
#[track_calls(linalg)]
pub fn matrix_rank_hermitian(a: &Tensor, tolerance: &Tolerance) -> RusTorchResult<Tensor> {
    const NAME: &str = "linalg.matrix_rank";
    square(NAME, a)?;
    rank(
        NAME,
        a,
        &hermitian_values(NAME, a, false)?.abs()?,
        tolerance,
    )
}

fn rank(
    name: &'static str,
    a: &Tensor,
    values: &Tensor,
    tolerance: &Tolerance,
) -> RusTorchResult<Tensor> {
    let bound = tolerance.bound(name, a, values)?;
    values.gt(&bound)?.sum(-1, false)
}

/// The pseudo-inverses (Moore and Penrose) of matrices `[…, m, n]`: `[…, n, m]`. The gradient
/// assumes that the rank does not change.
///
/// # Errors
/// The same errors as [`matrix_rank`].
#[track_calls(linalg)]
pub fn pinv(a: &Tensor, tolerance: &Tolerance) -> RusTorchResult<Tensor> {
    inverse("linalg.pinv", a, tolerance)
}

/// [`pinv`] of Hermitian matrices, whose lower triangles are read. The gradient goes to all
/// elements.
///
/// # Errors
/// The same errors as [`matrix_rank_hermitian`].
#[track_calls(linalg)]
pub fn pinv_hermitian(a: &Tensor, tolerance: &Tolerance) -> RusTorchResult<Tensor> {
    const NAME: &str = "linalg.pinv";
    square(NAME, a)?;
    let fits = a.dtype().is_float() || a.dtype().is_complex();
    require(NAME, fits, "floats or complex numbers", a.ty())?;
    let known = a.detach();
    // The lower triangle with half of the diagonal, of which the real part counts.
    let half = known.tril(0)?.add(&known.tril(-1)?)?.mul(0.5)?;
    let whole = half.add(&adjoint(&half)?)?;
    let whole = match a.requires_grad() {
        // The numbers of the whole matrix, and the gradient of the given one.
        true => a.add(&whole.sub(&known)?)?,
        false => whole,
    };
    inverse(NAME, &whole, tolerance)
}

fn inverse(name: &'static str, a: &Tensor, tolerance: &Tolerance) -> RusTorchResult<Tensor> {
    sizes(name, a)?;
    let [absolute, relative] = tolerance.bounds(name, a, a.dtype().real())?;
    // Several bounds for one matrix give several inverses.
    let shape = broadcast_shapes(name, &[batch(a), &[1]].concat(), absolute.shape())?;
    let shape = broadcast_shapes(name, &shape, relative.shape())?;
    let matrix = [&shape[..shape.len() - 1], &a.shape()[batch(a).len()..]].concat();
    let a = a.expand(&matrix[..])?;
    let [absolute, relative] = [absolute.expand(&shape[..])?, relative.expand(&shape[..])?];
    Tensor::apply(name, PseudoInverse, &[&a, &absolute, &relative])
}

/// The reciprocals of values that are above the bound, 0 for the others.
fn inverted(values: &Tensor, bound: &Tensor) -> RusTorchResult<Tensor> {
    let counts = values.gt(bound)?;
    let zero = counts.logical_not()?;
    values
        .masked_fill(&zero, 1)?
        .reciprocal()?
        .masked_fill(&zero, 0)
}

/// A solution of least squares.
#[derive(Clone, Debug)]
pub struct LeastSquares {
    /// The `X` `[…, n, k]` that minimises `‖A·X − B‖`; of several, the one with the smallest norm.
    pub solution: Tensor,
    /// The squared residuals `[…, k]` if all matrices have full rank and more rows than columns,
    /// else empty.
    pub residuals: Tensor,
    /// The ranks, `i64`.
    pub rank: Tensor,
    /// The singular values `[…, min(m, n)]`.
    pub singular_values: Tensor,
}

/// [`lstsq_with`] with the default bound for singular values.
///
/// # Errors
/// The same errors as [`lstsq_with`].
#[track_calls(linalg)]
pub fn lstsq(a: &Tensor, b: &Tensor) -> RusTorchResult<LeastSquares> {
    lstsq_with(a, b, &Tolerance::default())
}

/// The `X` that minimises `‖A·X − B‖`, for matrices `A` `[…, m, n]` and `B` `[…, m, k]`. `B` may be
/// vectors `[…, m]`, if that is `A`'s shape without the last dimension. The method uses singular
/// values. The residuals depend on the rank, so the rank is computed at once.
///
/// # Errors
/// Fails for shapes that do not fit, or dtypes that are not the same float or complex dtype.
#[track_calls(linalg)]
pub fn lstsq_with(a: &Tensor, b: &Tensor, tolerance: &Tolerance) -> RusTorchResult<LeastSquares> {
    const NAME: &str = "linalg.lstsq";
    let [m, n] = sizes(NAME, a)?;
    let is_vector = b.rank() + 1 == a.rank() && b.shape() == &a.shape()[..b.rank()];
    let matrix = if is_vector {
        b.unsqueeze(-1)?
    } else {
        b.clone()
    };
    let [rows, _] = sizes(NAME, &matrix)?;
    let fits = matrix.rank() <= a.rank();
    require(NAME, fits, "a right-hand side of no higher rank", b.ty())?;
    let got = format_args!("{} and {}", a.ty(), b.ty());
    require(NAME, rows == m, "as many rows as the matrices have", got)?;
    let [a, matrix] = broadcast(NAME, a, &matrix)?;
    let (u, s, vh) = svd(&a, false)?;
    let bound = tolerance.bound(NAME, &a, &s)?;
    let x = match a.requires_grad() {
        // Its gradient needs no singular vectors.
        true => inverse(NAME, &a, tolerance)?.matmul(&matrix)?,
        false => {
            let scaled = adjoint(&u)?
                .matmul(&matrix)?
                .mul(&inverted(&s, &bound)?.unsqueeze(-1)?)?;
            adjoint(&vh)?.matmul(&scaled)?
        }
    };
    let rank = s.gt(&bound)?.sum(-1, false)?;
    let is_full = m > n && rank.eq(n as i64)?.all(None, false)?.to_scalar::<bool>()?;
    let residuals = match is_full {
        true => a
            .matmul(&x)?
            .sub(&matrix)?
            .abs()?
            .square()?
            .sum(-2, false)?,
        false => Tensor::zeros([0], s.dtype())?,
    };
    let solution = if is_vector { x.squeeze(-1)? } else { x };
    Ok(LeastSquares {
        solution,
        residuals,
        rank,
        singular_values: s,
    })
}

#[track_calls]
impl Tensor {
    /// [`linalg::pinv`](pinv) with a relative bound for singular values; PyTorch's default is
    /// 1e-15.
    ///
    /// # Errors
    /// The same errors as [`pinv`].
    pub fn pinverse(&self, rcond: f64) -> RusTorchResult<Self> {
        let rtol = Self::scalar(rcond, self.dtype().real())?;
        let tolerance = Tolerance {
            rtol: Some(rtol),
            ..Tolerance::default()
        };
        pinv(self, &tolerance)
    }
}
