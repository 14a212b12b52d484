//! Norms.

use rustorch_macros::track_calls;

use super::factors::singular_values;
use super::solve::inv_ex;
use super::{batch, sizes, square};
use crate::Tensor;
use crate::args::dims::{Integer, IntoDims};
use crate::error::{RusTorchResult, require};

/// The norm of a matrix.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum MatrixNorm {
    /// The root of the sum of squared absolute values.
    #[default]
    Frobenius,
    /// The sum of the singular values.
    Nuclear,
    /// 1: the largest column sum of absolute values. ∞: the largest row sum. 2: the largest
    /// singular value. −1, −∞ and −2 take the smallest.
    P(f64),
}

/// The norm `(Σ|x|ᵖ)^(1/p)` of vectors along `dims`, see [`Tensor::norm`].
///
/// # Errors
/// Fails if a dimension does not exist, or for dtypes other than floats and complex numbers.
#[track_calls(linalg)]
pub fn vector_norm(
    x: &Tensor,
    ord: f64,
    dims: impl IntoDims,
    keepdim: bool,
) -> RusTorchResult<Tensor> {
    x.norm(ord, dims, keepdim)
}

/// The norm of vectors along one dimension, or of matrices in two: [`vector_norm`] or
/// [`matrix_norm`]. Without dimensions (`None`), `a` is a vector or a matrix. Without an order
/// (`None`), the norm is the root of the sum of squared absolute values.
///
/// # Errors
/// The same errors as these. Also fails for more than two dimensions in `dim`. Also fails for an
/// order without dimensions if `a` is neither vector nor matrix. Also fails for a named order of
/// vectors.
#[track_calls(linalg)]
pub fn norm(
    a: &Tensor,
    ord: impl Into<Option<MatrixNorm>>,
    dims: impl IntoDims,
    keepdim: bool,
) -> RusTorchResult<Tensor> {
    const NAME: &str = "linalg.norm";
    let (ord, dims) = (ord.into(), dims.into_dims());
    let all = dims.are_all();
    if all && ord.is_none() {
        return a.norm(2.0, None, keepdim);
    }
    let dims = dims.resolve(NAME, a.rank())?;
    let expected = match all {
        true => "a vector or a matrix, or the dimensions of one",
        false => "one or two dimensions",
    };
    require(NAME, matches!(dims.len(), 1 | 2), expected, a.ty())?;
    let p = match ord {
        None => Some(2.0),
        Some(MatrixNorm::P(p)) => Some(p),
        Some(_) => None,
    };
    let dims: Vec<isize> = dims.iter().map(|&dim| dim as isize).collect();
    let is_legal = dims.len() == 2 || p.is_some();
    require(NAME, is_legal, "two dimensions for this norm", a.ty())?;
    match (&dims[..], ord) {
        (&[row, column], Some(ord)) => norm_of(NAME, a, ord, [row, column], keepdim),
        _ => a.norm(p.unwrap_or(2.0), &dims[..], keepdim),
    }
}

/// The norm of the matrices in two dimensions.
///
/// # Errors
/// Fails if a dimension does not exist. Also fails for a `p` other than 1, 2, ∞ and their
/// negatives. Also fails for dtypes other than floats and complex numbers.
#[track_calls(linalg)]
pub fn matrix_norm(
    a: &Tensor,
    ord: MatrixNorm,
    dims: [isize; 2],
    keepdim: bool,
) -> RusTorchResult<Tensor> {
    norm_of("linalg.matrix_norm", a, ord, dims, keepdim)
}

fn norm_of(
    name: &'static str,
    a: &Tensor,
    ord: MatrixNorm,
    dims: [isize; 2],
    keepdim: bool,
) -> RusTorchResult<Tensor> {
    sizes(name, a)?;
    let [row, column] = [a.dim(name, dims[0])?, a.dim(name, dims[1])?];
    require(name, row != column, "two different dimensions", row)?;
    let others = (0..a.rank()).filter(|&d| d != row && d != column);
    let order: Vec<isize> = others.chain([row, column]).map(|d| d as isize).collect();
    let moved = a.permute(&order)?;
    let norm = match ord {
        MatrixNorm::Frobenius => moved.norm(2.0, [-2, -1], false)?,
        MatrixNorm::Nuclear => singular_values(name, &moved)?.sum(-1, false)?,
        MatrixNorm::P(p) => {
            let values = match p.abs() {
                1.0 => moved.abs()?.sum(-2, false)?,
                2.0 => singular_values(name, &moved)?,
                f64::INFINITY => moved.abs()?.sum(-1, false)?,
                _ => {
                    let expected = "an order of 1, 2 or infinity, or their opposites";
                    require(name, false, expected, p)?;
                    return Ok(moved);
                }
            };
            match values.shape().last() {
                // The largest of none is 0.
                Some(0) if p > 0.0 => values.sum(-1, false)?,
                _ if p > 0.0 => values.max(-1, false)?,
                _ => values.min(-1, false)?,
            }
        }
    };
    if !keepdim {
        return Ok(norm);
    }
    let [first, last] = [row.min(column), row.max(column)];
    norm.unsqueeze(first as isize)?.unsqueeze(last as isize)
}

/// The condition number `‖A‖·‖A⁻¹‖` of matrices: infinite for singular ones, 0 for empty ones.
/// Matrices are square unless the norm is [`MatrixNorm::P`] of 2 or −2.
///
/// # Errors
/// The same errors as [`matrix_norm`]. Also fails for matrices that are not square.
#[track_calls(linalg)]
pub fn cond(a: &Tensor, ord: MatrixNorm) -> RusTorchResult<Tensor> {
    const NAME: &str = "linalg.cond";
    if let MatrixNorm::P(p) = ord
        && p.abs() == 2.0
    {
        sizes(NAME, a)?;
        let values = singular_values(NAME, a)?;
        if values.shape().last() == Some(&0) {
            return values.sum(-1, false);
        }
        let [largest, smallest] = [values.select(-1, 0)?, values.select(-1, -1)?];
        return match p > 0.0 {
            true => largest.div(&smallest),
            false => smallest.div(&largest),
        };
    }
    if square(NAME, a)? == 0 {
        return Tensor::zeros(batch(a), a.dtype().real());
    }
    let norm = |x: &Tensor| norm_of(NAME, x, ord, [-2, -1], false);
    let (inverse, info) = inv_ex(a, false)?;
    let is_singular = info.gt(0)?;
    let each = is_singular.unsqueeze(-1)?.unsqueeze(-1)?;
    // Norms by singular values take finite elements only.
    let inverse = inverse.masked_fill(&each, 0)?;
    let product = norm(a)?.mul(&norm(&inverse)?)?;
    product.masked_fill(&is_singular, f64::INFINITY)
}

#[track_calls]
impl Tensor {
    /// Scales down slices along `dim` whose `p`-norm exceeds `max_norm`, to a norm of `max_norm`. Takes floats and
    /// complex numbers.
    ///
    /// # Errors
    /// Fails for an unsupported dtype, or fewer than two dimensions. Also fails for a `p` that is
    /// not positive, or a negative `max_norm`.
    pub fn renorm(&self, p: f64, dim: impl Integer, max_norm: f64) -> RusTorchResult<Self> {
        const NAME: &str = "renorm";
        require(NAME, self.rank() >= 2, "at least two dimensions", self.ty())?;
        require(NAME, p > 0.0, "a norm above 0", p)?;
        require(NAME, max_norm >= 0.0, "a max_norm of at least 0", max_norm)?;
        let own = self.dim(NAME, dim)?;
        let others = (0..self.rank()).filter(|&d| d != own);
        let others: Vec<isize> = others.map(|d| d as isize).collect();
        let norm = self.widened(NAME)?.norm(p, &others[..], true)?;
        // As PyTorch, which keeps clear of a division by 0.
        let scale = norm.add(1e-7)?.reciprocal()?.mul(max_norm)?;
        let scale = Tensor::where_(&norm.gt(max_norm)?, &scale, 1.0)?;
        self.mul(&scale)?.cast(NAME, self.dtype())
    }
}
