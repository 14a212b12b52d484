use rustorch_ir::{DType, Op, OpKind, Shape};
use smallvec::smallvec;

use super::concat::concat;
use crate::builder::{Builder, Var, Vars};
use crate::constant::Constant;
use crate::kernel::{Call, Kernel, is_float, parameters};
use crate::ops::index_select::gather;

pub(crate) const KERNEL: Kernel = Kernel {
    kind: OpKind::UpdateSlice,
    accepts,
    emit,
};

fn accepts(call: &Call) -> bool {
    let [state, source, _] = call.signature.inputs else {
        return false;
    };
    let are_ints = state.dtype == DType::I32 && source.dtype == DType::I32;
    (is_float(state.dtype) && is_float(source.dtype)) || are_ints
}

/// The state after the update, for its readers in the program. The runner of the program updates
/// the state in memory.
fn emit(b: &mut Builder, op: &Op, x: &[Var]) -> Vars {
    let dim = parameters!(op, UpdateSlice).dim;
    let (state, start) = (&x[0], b.reshape(&x[2], &[1]));
    let source = b.cast(&x[1], state.data_type);
    if state.is_state {
        return smallvec![update_kept(b, state, &source, &start, dim)];
    }
    let (size, count) = (state.shape[dim], source.shape[dim]);
    // The row of the source that each row of the state would be.
    let rows = b.range(size);
    let rows = b.binary("sub", &rows, &start);
    let [first, last] = [0, count - 1].map(|n| b.constant(&Constant::ints(&[n])));
    let inside = b.compare("greater_equal", &rows, &first);
    let before_end = b.compare("less_equal", &rows, &last);
    let inside = b.binary("logical_and", &inside, &before_end);
    let aligned: Shape = (0..state.shape.len())
        .map(|d| if d == dim { size } else { 1 })
        .collect();
    let inside = b.reshape(&inside, &aligned);
    let inside = b.expand(&inside, &state.shape);
    let source = if count == 1 {
        b.expand(&source, &state.shape)
    } else {
        let rows = b.binary("maximum", &rows, &first);
        let rows = b.binary("minimum", &rows, &last);
        gather(b, &source, &rows, dim)
    };
    smallvec![b.select(&inside, &source, state)]
}

/// The same of a state that the program keeps: there it is updated as well.
fn update_kept(b: &mut Builder, state: &Var, source: &Var, start: &Var, dim: usize) -> Var {
    let count = b.constant(&Constant::ints(&[source.shape[dim]]));
    let end = b.binary("add", start, &count);
    let zeros = vec![0; state.shape.len()];
    let begin = corner(b, &zeros, start, dim);
    let end = corner(b, &state.shape, &end, dim);
    let before = b.read_state(state);
    let args = [
        ("x", (&before).into()),
        ("update", source.into()),
        ("begin", (&begin).into()),
        ("end", (&end).into()),
    ];
    let behind = b.op("slice_update", &args, state.data_type, &state.shape);
    b.write_state(state, &behind);
    b.read_state(state)
}

/// These places, with another one in dimension `dim`.
fn corner(b: &mut Builder, places: &[usize], at: &Var, dim: usize) -> Var {
    let (before, behind) = (&places[..dim], &places[dim + 1..]);
    let [before, behind] = [before, behind].map(|part| {
        let is_there = !part.is_empty();
        is_there.then(|| b.constant(&Constant::ints(part)))
    });
    let parts: Vec<Var> = (before.into_iter())
        .chain([at.clone()])
        .chain(behind)
        .collect();
    match &parts[..] {
        [only] => only.clone(),
        _ => concat(b, &parts, 0),
    }
}
