use rustorch_ir::ops::UpdateSlice;
use rustorch_ir::{DType, Layout};

use crate::Values;
use crate::operand::{Call, Misuse};
use crate::values::{Element, each_type};

/// The updated state; the program writes it back.
pub(crate) fn evaluate(op: &UpdateSlice, call: &Call) -> Result<Values, Misuse> {
    let [state, source, start] = call.inputs else {
        unreachable!("inference admits only three operands");
    };
    let (size, count) = (state.shape()[op.dim], source.shape()[op.dim]);
    let start = i128::of(&start.values)[0];
    let first = usize::try_from(start).ok().filter(|&s| s <= size - count);
    let first = first.ok_or_else(|| {
        Misuse(format!(
            "{count} indices from {start} on do not fit dimension {} of {}: start at 0 to {}",
            op.dim,
            state.ty,
            size - count
        ))
    })?;
    if let (Values::Blocks(bytes), DType::Block(format)) = (&*state.values, state.dtype())
        && let Some((&width, _)) = state.shape().split_last()
        && let Values::Float(source) = &*source.values
    {
        let last = state.ty.rank() - 1;
        let rows = Layout::contiguous(&state.shape().clone().with_dim(last, 1));
        let row_bytes = format
            .row_bytes(width)
            .expect("a graph's types are whole blocks");
        let mut bytes = bytes.clone();
        let rows = rows.slice(op.dim, first, count, 1);
        for (row, source) in rows.positions().zip(source.chunks_exact(width)) {
            let source: Vec<f32> = source.iter().map(|&x| x as f32).collect();
            let whole = format.quantize(&source, &mut bytes[row * row_bytes..][..row_bytes]);
            whole.expect("a graph's types are whole blocks");
        }
        return Ok(Values::Blocks(bytes));
    }
    let part = state.layout().slice(op.dim, first, count, 1);
    Ok(each_type!(&*state.values, state => {
        let mut state = state.clone();
        assign(&mut state, &part, Element::of(&source.values));
        state
    }))
}

/// Sets the elements that `at` sees to `values`, in their order.
pub(crate) fn assign<T: Copy>(to: &mut [T], at: &Layout, values: &[T]) {
    for (position, &value) in at.positions().zip(values) {
        to[position] = value;
    }
}
