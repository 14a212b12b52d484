//! Automatic mixed precision: `torch.amp`.

use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::Arc;

use rustorch_ir::DType;

use crate::error::{RusTorchResult, require};
use crate::precision::{lower, with_lower};
use crate::thread_state::restoring;
use crate::{Tensor, is_grad_enabled};

thread_local! {
    /// Parameters in the lower precision, each beside its original; while something is recorded.
    static CASTS: RefCell<Vec<(Tensor, Tensor)>> = const { RefCell::new(Vec::new()) };
}

/// Calls `f` with automatic mixed precision. Products, convolutions and attention of `f32` and halves are recorded in
/// `dtype`, a half. Softmax, norms, losses, sums, powers and exponentials of halves are recorded in `f32`. Other
/// operations are unchanged. Every device uses PyTorch's lists of operations for CUDA. Operands are converted when they
/// are needed, a parameter only once. Gradients have the dtypes of the tensors, and are computed in the dtypes of the
/// operations. `None` switches conversion off inside another `autocast`.
///
/// Integers, `f64` and complex numbers keep their dtypes. Use it for the forward pass and the loss;
/// the backward pass needs none.
///
/// ```
/// use rustorch_ir::DType;
/// use rustorch_tensor::amp::autocast;
/// use rustorch_tensor::tensor;
///
/// # fn main() -> rustorch_tensor::RusTorchResult<()> {
/// let w = tensor![[1.0, 2.0], [3.0, 4.0]];
/// let (y, p) = autocast(DType::BF16, || {
///     let y = w.linear(&w, None)?;
///     let p = y.softmax(-1)?;
///     Ok((y, p))
/// })?;
/// assert_eq!((y.dtype(), p.dtype()), (DType::BF16, DType::F32));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Fails for an unsupported dtype. Also the errors of `f`.
pub fn autocast<T>(
    dtype: impl Into<Option<DType>>,
    f: impl FnOnce() -> RusTorchResult<T>,
) -> RusTorchResult<T> {
    let dtype = dtype.into();
    let is_half = |dtype| matches!(dtype, DType::F16 | DType::BF16);
    let got = dtype.map_or(String::new(), |dtype| dtype.to_string());
    require("autocast", dtype.is_none_or(is_half), "bf16 or f16", got)?;
    // Each has its own, for what another dtype was converted to is of no use.
    let set = |before| drop(CASTS.replace(before));
    restoring(CASTS.take(), set, || with_lower(dtype, f))
}

/// The dtype that this thread records products in, if it is in an [`autocast`].
pub fn autocast_dtype() -> Option<DType> {
    lower()
}

/// Operands of a product in the lower precision, if there is one.
pub(crate) fn lowered<'a, const N: usize>(
    name: &'static str,
    operands: [&'a Tensor; N],
) -> RusTorchResult<[Cow<'a, Tensor>; N]> {
    let mut results = operands.map(Cow::Borrowed);
    if lower().is_some() {
        for result in &mut results {
            *result = Cow::Owned(lowered_one(name, result)?);
        }
    }
    Ok(results)
}

/// An operand of a product that may be missing.
pub(crate) fn lowered_if_some<'a>(
    name: &'static str,
    operand: Option<&'a Tensor>,
) -> RusTorchResult<Option<Cow<'a, Tensor>>> {
    let one = |x| Ok(lowered(name, [x])?.map(Some));
    operand.map_or(Ok([None]), one).map(|[operand]| operand)
}

fn lowered_one(name: &'static str, x: &Tensor) -> RusTorchResult<Tensor> {
    let is_ours = matches!(x.dtype(), DType::F32 | DType::F16 | DType::BF16);
    let Some(dtype) = lower().filter(|dtype| is_ours && *dtype != x.dtype()) else {
        return Ok(x.clone());
    };
    // Parameters are converted once.
    let is_parameter = x.dtype() == DType::F32 && x.requires_grad() && x.is_leaf();
    if !is_parameter || !is_grad_enabled() {
        return x.cast(name, dtype);
    }
    let is_same = |of: &Tensor| {
        let tracks = of.track().zip(x.track());
        of.value().key() == x.value().key() && tracks.is_some_and(|(a, b)| Arc::ptr_eq(&a, &b))
    };
    let known = CASTS.with_borrow(|casts| {
        let found = casts.iter().find(|(of, _)| is_same(of));
        found.map(|(_, cast)| cast.clone())
    });
    match known {
        Some(cast) => Ok(cast),
        None => {
            let cast = x.cast(name, dtype)?;
            CASTS.with_borrow_mut(|casts| casts.push((x.clone(), cast.clone())));
            Ok(cast)
        }
    }
}
