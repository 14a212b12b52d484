//! Operands that are indices, and places in a tensor as messages name them.

use rustorch_ir::DType;

use crate::elementwise::{Reader, read_all};
use crate::kernel::Misuse;
use crate::view::View;

/// The coordinates of the element that is number `flat` in row-major order.
pub(crate) fn coordinates(shape: &[usize], mut flat: usize) -> Vec<usize> {
    let mut coordinates = vec![0; shape.len()];
    for (at, &size) in coordinates.iter_mut().zip(shape).rev() {
        *at = flat % size.max(1);
        flat /= size.max(1);
    }
    coordinates
}

/// The elements of an `i64` or `i32` operand, in row-major order, as indices of dimension
/// `dim` of `x`.
pub(crate) fn indices(index: &View, x: &View, dim: usize) -> Result<Vec<usize>, Misuse> {
    let size = x.shape()[dim];
    let inside = |i: i64| usize::try_from(i).is_ok_and(|i| i < size);
    let outside = match index.dtype() {
        DType::I64 => Reader::<i64>::new(index, index.layout).position(|i| !inside(i)),
        _ => Reader::<i32>::new(index, index.layout).position(|i| !inside(i.into())),
    };
    let all: Vec<i64> = match index.dtype() {
        DType::I64 => read_all::<i64>(index),
        _ => read_all::<i32>(index).into_iter().map(i64::from).collect(),
    };
    match outside {
        Some(at) => {
            let (value, at) = (all[at], coordinates(index.shape(), at));
            let range = format!("outside the {size} indices of dimension {dim} of {}", x.ty);
            Err(Misuse(format!("the index {value} at {at:?} is {range}")))
        }
        None => Ok(all.into_iter().map(|i| i as usize).collect()),
    }
}
