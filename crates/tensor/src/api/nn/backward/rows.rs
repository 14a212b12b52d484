//! Softmax, dropout, embeddings.

use rustorch_ir::{DType, OpError};
use rustorch_macros::track_calls;

use crate::Tensor;
use crate::args::dims::Integer;
use crate::error::{RusTorchResult, require};

/// The gradient of [`Tensor::softmax`]'s operand along `dim`: `y · (g - Σ g·y)`, for the gradient
/// `g` of its result `y`. Both have one shape. Takes floats.
///
/// # Errors
/// Fails for unsupported shapes or dtypes, or if the dimension does not exist.
#[track_calls]
pub fn softmax_backward_data(
    grad: &Tensor,
    output: &Tensor,
    dim: impl Integer,
) -> RusTorchResult<Tensor> {
    const NAME: &str = "softmax_backward_data";
    softened(NAME, grad, output, dim.to_isize(), |g, y, dim| {
        let product = g.mul(y)?;
        product.sub(&y.mul(&product.sum(dim, true)?)?)
    })
}

/// The gradient of [`Tensor::log_softmax`]'s operand along `dim`: `g - exp(y) · Σ g`, for the
/// gradient `g` of its result `y`. Both have one shape. Takes floats.
///
/// # Errors
/// The same errors as [`softmax_backward_data`].
#[track_calls]
pub fn log_softmax_backward_data(
    grad: &Tensor,
    output: &Tensor,
    dim: impl Integer,
) -> RusTorchResult<Tensor> {
    const NAME: &str = "log_softmax_backward_data";
    softened(NAME, grad, output, dim.to_isize(), |g, y, dim| {
        g.sub(&y.exp()?.mul(&g.sum(dim, true)?)?)
    })
}

fn softened(
    name: &'static str,
    grad: &Tensor,
    output: &Tensor,
    dim: isize,
    gradient: impl Fn(&Tensor, &Tensor, isize) -> RusTorchResult<Tensor>,
) -> RusTorchResult<Tensor> {
    output.require_float(name)?;
    grad.require_float(name)?;
    let fits = grad.shape() == output.shape();
    let expected = format_args!("a gradient in the shape of {}", output.ty());
    require(name, fits, expected, grad.ty())?;
    let dim = output.wrap_dim(name, dim)? as isize;
    let [g, y] = [grad.widened(name)?, output.widened(name)?];
    let result = gradient(&g.atleast_1d()?, &y.atleast_1d()?, dim)?;
    result.reshape(output.shape())?.cast(name, output.dtype())
}

/// The gradient of [`Tensor::native_dropout`]'s operand: the result's gradient times `scale` where
/// `mask` is true. They broadcast. `scale` is `1 / (1 - p)`.
///
/// # Errors
/// Fails for a mask other than `bool`, or shapes that do not broadcast.
#[track_calls]
pub fn native_dropout_backward(grad: &Tensor, mask: &Tensor, scale: f64) -> RusTorchResult<Tensor> {
    const NAME: &str = "native_dropout_backward";
    require(
        NAME,
        mask.dtype() == DType::Bool,
        "a mask of bool",
        mask.ty(),
    )?;
    grad.mul(&mask.cast(NAME, grad.dtype())?)?.mul(scale)
}

/// The gradient `[rows, d]` of the table of [`Tensor::embedding`], for the gradient `[…, d]` of its
/// result for `ids` `[…]`. The row `padding_idx` is zeros. With `scale_by_freq` each row is divided by
/// the number of its uses.
///
/// # Errors
/// Fails for unsupported shapes or dtypes, or a padding index outside the rows. Evaluation fails
/// for an id outside the rows.
#[track_calls]
pub fn embedding_dense_backward(
    grad: &Tensor,
    ids: &Tensor,
    rows: usize,
    padding_idx: Option<isize>,
    scale_by_freq: bool,
) -> RusTorchResult<Tensor> {
    const NAME: &str = "embedding_dense_backward";
    grad.require_float(NAME)?;
    let expected = format_args!("a gradient {:?} with a dimension behind", ids.shape());
    let Some((&width, lead)) = grad
        .shape()
        .split_last()
        .filter(|(_, lead)| *lead == ids.shape())
    else {
        return Err(OpError::new(NAME, expected, grad.ty()).into());
    };
    let count: usize = lead.iter().product();
    let g = grad.widened(NAME)?.reshape([count, width])?;
    let ids = ids.ravel()?;
    let g = match padding_idx {
        None => g,
        Some(id) => {
            let id = rustorch_ir::normalize_dim(NAME, id, rows)?;
            Tensor::where_(&ids.eq(id as i64)?.unsqueeze(1)?, 0.0, &g)?
        }
    };
    let sums = Tensor::zeros([rows, width], g.dtype())?.index_add(0, &ids, &g, 1)?;
    if !scale_by_freq {
        return sums.cast(NAME, grad.dtype());
    }
    let ones = Tensor::ones([count], g.dtype())?;
    let often = Tensor::zeros([rows], g.dtype())?.index_add(0, &ids, &ones, 1)?;
    let means = sums.div(&often.clamp_min(1)?.unsqueeze(1)?)?;
    means.cast(NAME, grad.dtype())
}
