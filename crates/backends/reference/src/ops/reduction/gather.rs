use rustorch_ir::ops::Gather;
use rustorch_ir::{Layout, Shape, TensorType};

use crate::Values;
use crate::operand::{Call, Misuse};
use crate::values::Element;

pub(crate) fn evaluate(op: &Gather, call: &Call) -> Result<Values, Misuse> {
    let (x, index) = (&call.inputs[0], &call.inputs[1]);
    let positions = addressed(x.ty, op.dim, index.shape(), &index.values)?;
    Ok(x.values.take(positions.into_iter()))
}

/// The positions in a tensor of type `x` that an index of shape `shape` addresses: each
/// element's own, but for dimension `dim`, where `index` says which.
pub(crate) fn addressed(
    x: &TensorType,
    dim: usize,
    shape: &Shape,
    index: &Values,
) -> Result<Vec<usize>, Misuse> {
    let mut lines = Layout::contiguous(&x.shape);
    let stride = std::mem::take(&mut lines.strides[dim]);
    lines.shape = shape.clone();
    let size = x.shape[dim];
    (lines.positions().zip(i128::of(index)).enumerate())
        .map(|(i, (line, &index))| match usize::try_from(index) {
            Ok(at) if at < size => Ok(line + at * stride),
            _ => Err(Misuse(format!(
                "element {i} of the index is {index}: dimension {dim} of {x} has indices 0 \
                 up to, but without, {size}"
            ))),
        })
        .collect()
}
