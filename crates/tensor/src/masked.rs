//! Functions of those elements of a tensor that a mask has `true` for, by the names of `torch.masked`.
//!
//! A mask is broadcast to the tensor's shape; of one that is not of booleans, what is not 0 counts. Without
//! a mask every element counts. What does not count is replaced by what changes nothing: 0 in a sum, −∞ where
//! the largest is asked for. So gradients flow to what counts alone.

use rustorch_ir::{DType, Scalar};
use rustorch_macros::track_calls;

use crate::Tensor;
use crate::dims::{Dims, Integer, IntoDims, OptionalDim};
use crate::elementwise::float_of;
use crate::error::{RusTorchResult, require};

/// Sum of what counts; of integers and booleans in `i64`.
///
/// # Errors
/// There are no such dimensions; a mask that does not broadcast to the shape.
#[track_calls(masked)]
pub fn sum(
    x: &Tensor,
    dims: impl IntoDims,
    keepdim: bool,
    mask: Option<&Tensor>,
) -> RusTorchResult<Tensor> {
    filled("masked.sum", x, mask, 0)?.sum(dims, keepdim)
}

/// Product of what counts; of integers and booleans in `i64`.
///
/// # Errors
/// As [`sum`].
#[track_calls(masked)]
pub fn prod(
    x: &Tensor,
    dims: impl IntoDims,
    keepdim: bool,
    mask: Option<&Tensor>,
) -> RusTorchResult<Tensor> {
    filled("masked.prod", x, mask, 1)?.prod(dims, keepdim)
}

/// Sums up to each element, in the dtype of `x`, as PyTorch's masked sum.
///
/// # Errors
/// As [`sum`].
#[track_calls(masked)]
pub fn cumsum(x: &Tensor, dim: impl Integer, mask: Option<&Tensor>) -> RusTorchResult<Tensor> {
    const NAME: &str = "masked.cumsum";
    filled(NAME, x, mask, 0)?.cumsum(dim)?.cast(NAME, x.dtype())
}

/// Products up to each element, in the dtype of `x`, as PyTorch's masked product.
///
/// # Errors
/// As [`sum`].
#[track_calls(masked)]
pub fn cumprod(x: &Tensor, dim: impl Integer, mask: Option<&Tensor>) -> RusTorchResult<Tensor> {
    const NAME: &str = "masked.cumprod";
    filled(NAME, x, mask, 1)?
        .cumprod(dim)?
        .cast(NAME, x.dtype())
}

/// The largest of what counts: −∞, or the least integer, where nothing does. Real numbers.
///
/// # Errors
/// As [`sum`]; there are no elements; another dtype.
#[track_calls(masked)]
pub fn amax(
    x: &Tensor,
    dims: impl IntoDims,
    keepdim: bool,
    mask: Option<&Tensor>,
) -> RusTorchResult<Tensor> {
    const NAME: &str = "masked.amax";
    filled(NAME, x, mask, least(NAME, x)?)?.max(dims, keepdim)
}

/// The smallest of what counts: ∞, or the largest integer, where nothing does. Real numbers.
///
/// # Errors
/// As [`amax`].
#[track_calls(masked)]
pub fn amin(
    x: &Tensor,
    dims: impl IntoDims,
    keepdim: bool,
    mask: Option<&Tensor>,
) -> RusTorchResult<Tensor> {
    const NAME: &str = "masked.amin";
    filled(NAME, x, mask, most(NAME, x)?)?.min(dims, keepdim)
}

/// Where the largest of what counts is, in the dtype of `x`, as PyTorch gives it. Real numbers.
///
/// # Errors
/// As [`amax`].
#[track_calls(masked)]
pub fn argmax(
    x: &Tensor,
    dim: impl OptionalDim,
    keepdim: bool,
    mask: Option<&Tensor>,
) -> RusTorchResult<Tensor> {
    const NAME: &str = "masked.argmax";
    filled(NAME, x, mask, least(NAME, x)?)?
        .argmax(dim, keepdim)?
        .cast(NAME, x.dtype())
}

/// Where the smallest of what counts is, in the dtype of `x`, as PyTorch gives it. Real numbers.
///
/// # Errors
/// As [`amax`].
#[track_calls(masked)]
pub fn argmin(
    x: &Tensor,
    dim: impl OptionalDim,
    keepdim: bool,
    mask: Option<&Tensor>,
) -> RusTorchResult<Tensor> {
    const NAME: &str = "masked.argmin";
    filled(NAME, x, mask, most(NAME, x)?)?
        .argmin(dim, keepdim)?
        .cast(NAME, x.dtype())
}

/// Mean of what counts, NaN where nothing does. Floats and complex numbers.
///
/// # Errors
/// As [`sum`]; another dtype.
#[track_calls(masked)]
pub fn mean(
    x: &Tensor,
    dims: impl IntoDims,
    keepdim: bool,
    mask: Option<&Tensor>,
) -> RusTorchResult<Tensor> {
    const NAME: &str = "masked.mean";
    let is_mean = x.dtype().is_float() || x.dtype().is_complex();
    require(NAME, is_mean, "floats or complex numbers", x.ty())?;
    let dims = dims.into_dims();
    let count = counts(NAME, x, &dims, keepdim, mask)?;
    filled(NAME, x, mask, 0)?.sum(dims, keepdim)?.div(&count)
}

/// Median of what counts, the lower one of two; of floats NaN where nothing does. Real numbers.
///
/// # Errors
/// There is no such dimension; a mask that does not broadcast; a row of integers of which nothing counts, for which
/// the values are computed; another dtype.
#[track_calls(masked)]
pub fn median(
    x: &Tensor,
    dim: impl Integer,
    keepdim: bool,
    mask: Option<&Tensor>,
) -> RusTorchResult<Tensor> {
    const NAME: &str = "masked.median";
    let filled = filled(NAME, &x.cast(NAME, float_of(x.dtype()))?, mask, f64::NAN)?;
    let (median, _) = filled.nanmedian_dim(dim, keepdim)?;
    if x.dtype().is_float() {
        return Ok(median);
    }
    let is_empty = median.isnan()?.any(None, false)?.to_scalar::<bool>()?;
    let expected = "of integers something that counts in each row";
    require(NAME, !is_empty, expected, "a mask without")?;
    median.cast(NAME, x.dtype())
}

/// `ln Σ eˣ` of what counts, in the dtype of `x`.
///
/// # Errors
/// As [`sum`]; booleans.
#[track_calls(masked)]
pub fn logsumexp(
    x: &Tensor,
    dims: impl IntoDims,
    keepdim: bool,
    mask: Option<&Tensor>,
) -> RusTorchResult<Tensor> {
    const NAME: &str = "masked.logsumexp";
    let identity = match x.dtype().is_complex() {
        true => f64::NEG_INFINITY.into(),
        false => least(NAME, x)?,
    };
    filled(NAME, x, mask, identity)?
        .logsumexp(dims, keepdim)?
        .cast(NAME, x.dtype())
}

/// `ln(eᵃ + eᵇ)`, each operand −∞ where its mask is `false`. Floats.
///
/// # Errors
/// Masks that do not broadcast to their operands, operands that do not to each other; another dtype.
#[track_calls(masked)]
pub fn logaddexp(
    a: &Tensor,
    b: &Tensor,
    a_mask: Option<&Tensor>,
    b_mask: Option<&Tensor>,
) -> RusTorchResult<Tensor> {
    const NAME: &str = "masked.logaddexp";
    let one = |x: &Tensor, mask| filled(NAME, x, mask, least(NAME, x)?);
    one(a, a_mask)?
        .logaddexp(&one(b, b_mask)?)?
        .cast(NAME, a.dtype())
}

/// The norm `(Σ|x|ᵖ)^(1/p)` of what counts, see [`Tensor::norm`].
///
/// # Errors
/// As [`sum`]; other than floats and complex numbers.
#[track_calls(masked)]
pub fn norm(
    x: &Tensor,
    p: f64,
    dims: impl IntoDims,
    keepdim: bool,
    mask: Option<&Tensor>,
) -> RusTorchResult<Tensor> {
    let identity = match p == f64::NEG_INFINITY {
        true => f64::INFINITY,
        false => 0.0,
    };
    filled("masked.norm", x, mask, identity)?.norm(p, dims, keepdim)
}

/// What counts divided by its norm along `dim`, or by `eps` if that is larger; 0 elsewhere.
///
/// # Errors
/// As [`norm`].
#[track_calls(masked)]
pub fn normalize(
    x: &Tensor,
    p: f64,
    dim: impl Integer,
    eps: f64,
    mask: Option<&Tensor>,
) -> RusTorchResult<Tensor> {
    let norm = norm(x, p, dim.to_isize(), true, mask)?;
    filled("masked.normalize", x, mask, 0)?.div(&norm.maximum(eps)?)
}

/// Variance of what counts: the sum of squared distances from the mean over their number less
/// `correction`, at least 0. Integers as `f32`.
///
/// # Errors
/// As [`sum`].
#[track_calls(masked)]
pub fn var(
    x: &Tensor,
    dims: impl IntoDims,
    correction: impl Into<f64>,
    keepdim: bool,
    mask: Option<&Tensor>,
) -> RusTorchResult<Tensor> {
    const NAME: &str = "masked.var";
    let (dims, correction) = (dims.into_dims(), correction.into());
    let dtype = float_of(x.dtype());
    let mut count = counts(NAME, x, &dims, true, mask)?;
    let numbers = filled(NAME, &x.cast(NAME, dtype)?, mask, 0)?;
    let mean = numbers.sum(dims.clone(), true)?.div(&count)?;
    let apart = x.sub(&mean)?;
    let squares = filled(NAME, &apart.mul(&apart.conj()?)?, mask, 0)?;
    let total = squares.sum(dims, keepdim)?;
    if correction != 0.0 {
        count = count
            .cast(NAME, dtype.real())?
            .sub(correction)?
            .maximum(0.0)?;
    }
    total.div(&count.reshape(total.shape())?)
}

/// The root of [`var`].
///
/// # Errors
/// As [`sum`].
#[track_calls(masked)]
pub fn std(
    x: &Tensor,
    dims: impl IntoDims,
    correction: impl Into<f64>,
    keepdim: bool,
    mask: Option<&Tensor>,
) -> RusTorchResult<Tensor> {
    var(x, dims, correction, keepdim, mask)?.sqrt()
}

/// Softmax of what counts, 0 elsewhere; NaN where nothing does. Floats.
///
/// # Errors
/// There is no such dimension; a mask that does not broadcast; another dtype.
#[track_calls(masked)]
pub fn softmax(x: &Tensor, dim: impl Integer, mask: Option<&Tensor>) -> RusTorchResult<Tensor> {
    const NAME: &str = "masked.softmax";
    filled(NAME, x, mask, least(NAME, x)?)?.softmax(dim)
}

/// Logarithm of [`softmax`], −∞ elsewhere.
///
/// # Errors
/// As [`softmax`].
#[track_calls(masked)]
pub fn log_softmax(x: &Tensor, dim: impl Integer, mask: Option<&Tensor>) -> RusTorchResult<Tensor> {
    const NAME: &str = "masked.log_softmax";
    filled(NAME, x, mask, least(NAME, x)?)?.log_softmax(dim)
}

/// [`softmax`] of the opposite numbers.
///
/// # Errors
/// As [`softmax`].
#[track_calls(masked)]
pub fn softmin(x: &Tensor, dim: impl Integer, mask: Option<&Tensor>) -> RusTorchResult<Tensor> {
    const NAME: &str = "masked.softmin";
    filled(NAME, x, mask, most(NAME, x)?)?.softmin(dim)
}

/// `x`, with `identity` where the mask is `false`.
fn filled(
    name: &'static str,
    x: &Tensor,
    mask: Option<&Tensor>,
    identity: impl Into<Scalar>,
) -> RusTorchResult<Tensor> {
    match mask {
        Some(mask) => {
            let identity = Tensor::scalar(identity.into(), x.dtype())?;
            Tensor::where_(&broadcast(name, x, mask)?, x, &identity)
        }
        None => Ok(x.clone()),
    }
}

/// The mask of each element.
fn broadcast(name: &'static str, x: &Tensor, mask: &Tensor) -> RusTorchResult<Tensor> {
    mask.cast(name, DType::Bool)?.expand_as(x)
}

/// How many elements count, `i64`.
fn counts(
    name: &'static str,
    x: &Tensor,
    dims: &Dims,
    keepdim: bool,
    mask: Option<&Tensor>,
) -> RusTorchResult<Tensor> {
    let counting = match mask {
        Some(mask) => broadcast(name, x, mask)?,
        None => Tensor::ones(x.shape(), DType::Bool)?,
    };
    counting.sum(dims.clone(), keepdim)
}

/// What no number of the dtype of `x` is below.
fn least(name: &'static str, x: &Tensor) -> RusTorchResult<Scalar> {
    Ok(match real(name, x)? {
        d if d.is_float() => f64::NEG_INFINITY.into(),
        d if d.is_unsigned() => 0.into(),
        d => (i64::MIN >> (64 - bits(d))).into(),
    })
}

/// What no number of the dtype of `x` is above.
fn most(name: &'static str, x: &Tensor) -> RusTorchResult<Scalar> {
    Ok(match real(name, x)? {
        d if d.is_float() => f64::INFINITY.into(),
        d if d.is_unsigned() => (u64::MAX >> (64 - bits(d))).into(),
        d => (i64::MAX >> (64 - bits(d))).into(),
    })
}

/// The dtype of `x`, of real numbers.
fn real(name: &'static str, x: &Tensor) -> RusTorchResult<DType> {
    let dtype = x.dtype();
    let is_real = dtype.is_float() || dtype.is_int();
    require(name, is_real, "real numbers", x.ty())?;
    Ok(dtype)
}

/// Bits of an integer.
fn bits(dtype: DType) -> usize {
    dtype.size().map_or(64, |bytes| 8 * bytes)
}
