use rustorch_ir::Shape;
use rustorch_ir::ops::IndexSelect;

use super::gather::addressed;
use crate::Values;
use crate::operand::{Call, Misuse};

/// A gather whose index is the same for all lines.
pub(crate) fn evaluate(op: &IndexSelect, call: &Call) -> Result<Values, Misuse> {
    let (x, index) = (&call.inputs[0], &call.inputs[1]);
    let shape = &call.output().shape;
    let along: Shape = vec![1; shape.len()].into();
    let along = along.with_dim(op.dim, index.shape()[0]);
    let lines = rustorch_ir::Layout::contiguous(&along).broadcast_to(shape);
    let positions = addressed(x.ty, op.dim, shape, &index.seen(&lines))?;
    Ok(x.values.take(positions.into_iter()))
}
