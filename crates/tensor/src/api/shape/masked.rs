//! Functions of the elements that a mask selects, with the names of `torch.masked`.
//!
//! A mask is broadcast to the tensor's shape. A mask that is not `bool` selects the elements where
//! it is not 0. Without a mask every element is selected. Masked elements are replaced by neutral
//! ones: 0 in a sum, −∞ in a maximum. So gradients flow only to selected elements.

use rustorch_ir::{DType, Scalar};
use rustorch_macros::track_calls;

use crate::Tensor;
use crate::api::math::elementwise::float_of;
use crate::args::dims::{Dims, Integer, IntoDims, OptionalDim};
use crate::error::{RusTorchResult, require};

/// Functions of the selected elements. A line has documentation, name and arguments, the neutral
/// element that replaces the others, and the formula.
macro_rules! functions {
    ($($doc:literal $name:ident($($argument:ident: $type:ty),+): $neutral:expr, |$filled:ident| $made:expr;)+) => {$(
        #[doc = $doc]
        ///
        /// # Errors
        /// Fails if a dimension does not exist, or for a mask that does not broadcast to the shape.
        /// Also fails for a dtype that the unmasked function does not support.
        #[track_calls(masked)]
        pub fn $name(
            x: &Tensor,
            $($argument: $type,)+
            mask: Option<&Tensor>,
        ) -> RusTorchResult<Tensor> {
            let name = concat!("masked.", stringify!($name));
            let $filled = filled(name, x, mask, $neutral(name, x)?)?;
            $made
        }
    )+};
}

functions! {
    "Sum of the selected elements; an `i64` for integers and booleans."
    sum(dims: impl IntoDims, keepdim: bool): zero, |x| x.sum(dims, keepdim);
    "Product of the selected elements; an `i64` for integers and booleans."
    prod(dims: impl IntoDims, keepdim: bool): one, |x| x.prod(dims, keepdim);
    "Cumulative sums of the selected elements, in the dtype of `x`."
    cumsum(dim: impl Integer): zero, |x| x.cumsum(dim)?.cast("masked.cumsum", x.dtype());
    "Cumulative products of the selected elements, in the dtype of `x`."
    cumprod(dim: impl Integer): one, |x| x.cumprod(dim)?.cast("masked.cumprod", x.dtype());
    "Largest selected element: −∞, or the least integer, if there is none. Takes real numbers; `x` may not be empty."
    amax(dims: impl IntoDims, keepdim: bool): least, |x| x.max(dims, keepdim);
    "Smallest selected element: ∞, or the largest integer, if there is none. Takes real numbers; `x` may not be empty."
    amin(dims: impl IntoDims, keepdim: bool): most, |x| x.min(dims, keepdim);
    "Index of the largest selected element, in the dtype of `x`, as in PyTorch. Takes real numbers; `x` may not be empty."
    argmax(dim: impl OptionalDim, keepdim: bool): least,
        |x| x.argmax(dim, keepdim)?.cast("masked.argmax", x.dtype());
    "Index of the smallest selected element, in the dtype of `x`, as in PyTorch. Takes real numbers; `x` may not be empty."
    argmin(dim: impl OptionalDim, keepdim: bool): most,
        |x| x.argmin(dim, keepdim)?.cast("masked.argmin", x.dtype());
    "`ln Σ eˣ` of the selected elements, in the dtype of `x`. Takes numbers."
    logsumexp(dims: impl IntoDims, keepdim: bool): least,
        |x| x.logsumexp(dims, keepdim)?.cast("masked.logsumexp", x.dtype());
    "The norm `(Σ|x|ᵖ)^(1/p)` of the selected elements, see [`Tensor::norm`]. Takes floats and complex numbers."
    norm(p: f64, dims: impl IntoDims, keepdim: bool):
        if p == f64::NEG_INFINITY { most } else { zero }, |x| x.norm(p, dims, keepdim);
    "Softmax of the selected elements, 0 elsewhere; NaN if there are none. Takes floats."
    softmax(dim: impl Integer): least, |x| x.softmax(dim);
    "Logarithm of [`softmax`], −∞ elsewhere. Takes floats."
    log_softmax(dim: impl Integer): least, |x| x.log_softmax(dim);
    "[`softmax`] of the negated numbers. Takes floats."
    softmin(dim: impl Integer): most, |x| x.softmin(dim);
}

/// Mean of the selected elements, NaN if there are none.
///
/// # Errors
/// The same errors as [`sum`]. Also fails for an unsupported dtype.
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

/// Median of the selected elements, the lower one of two. Floats give NaN if there are none.
///
/// # Errors
/// Fails if the dimension does not exist. Fails for a mask that does not broadcast. Fails for a row
/// of integers without counted elements. This check computes the values. Fails for an unsupported
/// dtype.
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
    let expected = "at least one selected element in each row, for integers";
    require(NAME, !is_empty, expected, "a mask without")?;
    median.cast(NAME, x.dtype())
}

/// `ln(eᵃ + eᵇ)`, each operand −∞ where its mask is `false`. Takes floats.
///
/// # Errors
/// Fails for masks that do not broadcast to their operands, or operands that do not broadcast to
/// each other. Also fails for an unsupported dtype.
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

/// The unmasked elements divided by their norm along `dim`, or by `eps` if that is larger; 0 elsewhere.
///
/// # Errors
/// The same errors as [`norm`].
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

/// Variance of the selected elements: the sum of squared distances from the mean, divided by their
/// number minus `correction`, at least 0.
///
/// # Errors
/// The same errors as [`sum`].
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

/// The square root of [`var`].
///
/// # Errors
/// The same errors as [`sum`].
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

/// Number of counted elements, `i64`.
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

/// The neutral element of sums.
fn zero(_: &'static str, _: &Tensor) -> RusTorchResult<Scalar> {
    Ok(0.into())
}

/// The neutral element of products.
fn one(_: &'static str, _: &Tensor) -> RusTorchResult<Scalar> {
    Ok(1.into())
}

/// The lowest value of `x`'s dtype.
fn least(name: &'static str, x: &Tensor) -> RusTorchResult<Scalar> {
    Ok(match number(name, x)? {
        d if !d.is_int() => f64::NEG_INFINITY.into(),
        d if d.is_unsigned() => 0.into(),
        d => (i64::MIN >> (64 - bits(d))).into(),
    })
}

/// The highest value of `x`'s dtype.
fn most(name: &'static str, x: &Tensor) -> RusTorchResult<Scalar> {
    Ok(match number(name, x)? {
        d if !d.is_int() => f64::INFINITY.into(),
        d if d.is_unsigned() => (u64::MAX >> (64 - bits(d))).into(),
        d => (i64::MAX >> (64 - bits(d))).into(),
    })
}

/// The dtype of `x`, of numbers.
fn number(name: &'static str, x: &Tensor) -> RusTorchResult<DType> {
    let dtype = x.dtype();
    let is_number = dtype.is_float() || dtype.is_int() || dtype.is_complex();
    require(name, is_number, "numbers", x.ty())?;
    Ok(dtype)
}

/// Bits of an integer.
fn bits(dtype: DType) -> usize {
    dtype.size().map_or(64, |bytes| 8 * bytes)
}
