//! Storages as graph inputs.

use rustorch_ir::ops::{AsStrided, Reshape};
use rustorch_ir::{Graph, Layout, Op, OpError, TensorType, ValueId};
use smallvec::SmallVec;

/// The type of a storage of `bytes` bytes as an input.
pub(crate) fn input_type(ty: &TensorType, is_whole: bool, bytes: usize) -> TensorType {
    match ty.dtype.size() {
        Some(size) if !is_whole => TensorType::new([bytes / size], ty.dtype),
        _ => ty.clone(),
    }
}

/// The operations that make a value of type `ty` of an input. The value is the whole input in
/// row-major order, or the part that `layout` shows.
pub(crate) fn made_of(
    input: &TensorType,
    ty: &TensorType,
    layout: Option<&Layout>,
) -> SmallVec<[Op; 2]> {
    let reshape = |shape| Op::from(Reshape { shape });
    let mut ops = SmallVec::new();
    match layout {
        None if input.shape == ty.shape => {}
        None => ops.push(reshape(ty.shape.clone())),
        Some(layout) => {
            if input.rank() != 1 {
                ops.push(reshape([input.shape.elements()].into()));
            }
            let layout = layout.clone();
            ops.push(AsStrided { layout }.into());
        }
    }
    ops
}

/// Adds the operations of [`made_of`] to a graph that has the input.
pub(crate) fn put_in(
    graph: &mut Graph,
    input: ValueId,
    ty: &TensorType,
    layout: Option<&Layout>,
) -> Result<ValueId, OpError> {
    let mut ops = made_of(graph.ty(input), ty, layout).into_iter();
    ops.try_fold(input, |value, op| graph.push(op, &[value]))
}
