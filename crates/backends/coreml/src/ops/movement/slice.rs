use rustorch_ir::{Op, OpKind};
use smallvec::smallvec;

use crate::builder::{Builder, Var, Vars};
use crate::constant::Constant;
use crate::kernel::{Kernel, is_any, parameters};

pub(crate) const KERNEL: Kernel = Kernel {
    kind: OpKind::Slice,
    accepts: |call| call.operands_are(is_any),
    emit,
};

fn emit(b: &mut Builder, op: &Op, x: &[Var]) -> Vars {
    let op = parameters!(op, Slice);
    smallvec![slice(b, &x[0], op.dim, (op.start, op.end), op.step)]
}

/// Every `step`-th index of a dimension in a range.
pub(crate) fn slice(
    b: &mut Builder,
    x: &Var,
    dim: usize,
    (start, end): (usize, usize),
    step: usize,
) -> Var {
    let at = |value: usize, other: &[usize]| {
        let mut all = other.to_vec();
        all[dim] = value;
        all
    };
    let (zeros, ones) = (vec![0; x.shape.len()], vec![1; x.shape.len()]);
    let shape = at((end - start).div_ceil(step), &x.shape);
    let args = [
        ("x", x.into()),
        ("begin", Constant::ints(&at(start, &zeros)).into()),
        ("end", Constant::ints(&at(end, &x.shape)).into()),
        ("stride", Constant::ints(&at(step, &ones)).into()),
    ];
    b.op("slice_by_index", &args, x.data_type, &shape)
}
