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

/// Functions of what a mask lets count: documentation, name and arguments; what stands for what does not count, which
/// changes nothing there; and what is made of a tensor that has it.
macro_rules! functions {
    ($($doc:literal $name:ident($($argument:ident: $type:ty),+): $neutral:expr, |$filled:ident| $made:expr;)+) => {$(
        #[doc = $doc]
        ///
        /// # Errors
        /// There are no such dimensions; a mask that does not broadcast to the shape; a dtype that the function of all
        /// elements is not defined for.
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
    "Sum of what counts; of integers and booleans in `i64`."
    sum(dims: impl IntoDims, keepdim: bool): zero, |x| x.sum(dims, keepdim);
    "Product of what counts; of integers and booleans in `i64`."
    prod(dims: impl IntoDims, keepdim: bool): one, |x| x.prod(dims, keepdim);
    "Sums up to each element, in the dtype of `x`, as PyTorch's masked sum."
    cumsum(dim: impl Integer): zero, |x| x.cumsum(dim)?.cast("masked.cumsum", x.dtype());
    "Products up to each element, in the dtype of `x`, as PyTorch's masked product."
    cumprod(dim: impl Integer): one, |x| x.cumprod(dim)?.cast("masked.cumprod", x.dtype());
    "The largest of what counts: −∞, or the least integer, where nothing does. Real numbers, of which there are some."
    amax(dims: impl IntoDims, keepdim: bool): least, |x| x.max(dims, keepdim);
    "The smallest of what counts: ∞, or the largest integer, where nothing does. Real numbers, of which there are some."
    amin(dims: impl IntoDims, keepdim: bool): most, |x| x.min(dims, keepdim);
    "Where the largest of what counts is, in the dtype of `x`, as PyTorch gives it. Real numbers, of which there are some."
    argmax(dim: impl OptionalDim, keepdim: bool): least,
        |x| x.argmax(dim, keepdim)?.cast("masked.argmax", x.dtype());
    "Where the smallest of what counts is, in the dtype of `x`, as PyTorch gives it. Real numbers, of which there are some."
    argmin(dim: impl OptionalDim, keepdim: bool): most,
        |x| x.argmin(dim, keepdim)?.cast("masked.argmin", x.dtype());
    "`ln Σ eˣ` of what counts, in the dtype of `x`. Numbers."
    logsumexp(dims: impl IntoDims, keepdim: bool): least,
        |x| x.logsumexp(dims, keepdim)?.cast("masked.logsumexp", x.dtype());
    "The norm `(Σ|x|ᵖ)^(1/p)` of what counts, see [`Tensor::norm`]. Floats and complex numbers."
    norm(p: f64, dims: impl IntoDims, keepdim: bool):
        if p == f64::NEG_INFINITY { most } else { zero }, |x| x.norm(p, dims, keepdim);
    "Softmax of what counts, 0 elsewhere; NaN where nothing does. Floats."
    softmax(dim: impl Integer): least, |x| x.softmax(dim);
    "Logarithm of [`softmax`], −∞ elsewhere. Floats."
    log_softmax(dim: impl Integer): least, |x| x.log_softmax(dim);
    "[`softmax`] of the opposite numbers. Floats."
    softmin(dim: impl Integer): most, |x| x.softmin(dim);
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

/// What changes no sum.
fn zero(_: &'static str, _: &Tensor) -> RusTorchResult<Scalar> {
    Ok(0.into())
}

/// What changes no product.
fn one(_: &'static str, _: &Tensor) -> RusTorchResult<Scalar> {
    Ok(1.into())
}

/// What no number of the dtype of `x` is below.
fn least(name: &'static str, x: &Tensor) -> RusTorchResult<Scalar> {
    Ok(match number(name, x)? {
        d if !d.is_int() => f64::NEG_INFINITY.into(),
        d if d.is_unsigned() => 0.into(),
        d => (i64::MIN >> (64 - bits(d))).into(),
    })
}

/// What no number of the dtype of `x` is above.
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
