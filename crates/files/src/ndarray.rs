//! Arrays of the crate `ndarray` (feature `ndarray`).

use ndarray::{Array, ArrayD, Dimension, IxDyn};
use rustorch_ir::OpError;
use rustorch_macros::track_calls;
use rustorch_tensor::{Element, RusTorchResult, Tensor};

/// An array as a tensor of its shape. The tensor takes over memory that is contiguous in row-major
/// order; other elements are copied.
///
/// # Errors
/// Fails for a shape too large for memory.
#[track_calls]
pub fn from_ndarray<T: Element, D: Dimension>(array: Array<T, D>) -> RusTorchResult<Tensor> {
    let shape = array.shape().to_vec();
    let is_whole = array.is_standard_layout();
    let elements = match is_whole {
        true => match array.into_raw_vec_and_offset() {
            (elements, None | Some(0)) if elements.len() == shape.iter().product::<usize>() => {
                elements
            }
            (elements, offset) => {
                let shown = elements.into_iter().skip(offset.unwrap_or(0));
                shown.take(shape.iter().product()).collect()
            }
        },
        false => array.iter().copied().collect(),
    };
    Tensor::from_vec(elements, shape)
}

/// A tensor's elements, evaluated if necessary, as an array in row-major order.
///
/// # Errors
/// Fails if `T` is not the type of the tensor's dtype, or if the tensor cannot be computed.
#[track_calls]
pub fn to_ndarray<T: Element>(tensor: &Tensor) -> RusTorchResult<ArrayD<T>> {
    let elements = tensor.to_vec::<T>()?;
    let array = ArrayD::from_shape_vec(IxDyn(tensor.shape()), elements);
    let wrong = |error| OpError::new("to_ndarray", "a shape of an array", error);
    Ok(array.map_err(wrong)?)
}
