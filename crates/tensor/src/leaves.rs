//! Storages as inputs of graphs.

use rustorch_ir::ops::{AsStrided, Reshape};
use rustorch_ir::{Graph, Layout, OpError, TensorType, ValueId};

/// The type of a storage of so many bytes as an input, of which a value of type `ty` is the whole
/// or a part.
pub(crate) fn input_type(ty: &TensorType, is_whole: bool, bytes: usize) -> TensorType {
    match ty.dtype.size() {
        Some(size) if !is_whole => TensorType::new([bytes / size], ty.dtype),
        _ => ty.clone(),
    }
}

/// A value of type `ty` that is all of another one in row-major order, or what `layout` shows of it.
pub(crate) fn put_in(
    graph: &mut Graph,
    input: ValueId,
    ty: &TensorType,
    layout: Option<&Layout>,
) -> Result<ValueId, OpError> {
    let Some(layout) = layout else {
        return match graph.ty(input).shape == ty.shape {
            true => Ok(input),
            false => graph.reshape(input, ty.shape.clone()),
        };
    };
    let elements = graph.ty(input).shape.elements();
    let flat = match graph.ty(input).rank() {
        1 => input,
        _ => graph.push(
            Reshape {
                shape: [elements].into(),
            },
            &[input],
        )?,
    };
    let layout = layout.clone();
    graph.push(AsStrided { layout }, &[flat])
}
