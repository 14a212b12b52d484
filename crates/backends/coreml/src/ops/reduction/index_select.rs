use rustorch_ir::{Op, OpKind, Shape};
use smallvec::smallvec;

use crate::builder::{Builder, Var};
use crate::constant::Constant;
use crate::kernel::{Kernel, is_number, parameters};

pub(crate) const KERNEL: Kernel = Kernel {
    kind: OpKind::IndexSelect,
    accepts: |call| call.operands_are(is_number),
    emit: |b, op: &Op, x| smallvec![gather(b, &x[0], &x[1], parameters!(op, IndexSelect).dim)],
};

/// The indices of one dimension that a tensor lists.
pub(crate) fn gather(b: &mut Builder, x: &Var, indices: &Var, dim: usize) -> Var {
    let (before, from) = x.shape.split_at(dim);
    let sizes = before.iter().chain(&*indices.shape).chain(&from[1..]);
    let shape: Shape = sizes.copied().collect();
    let args = [
        ("x", x.into()),
        ("indices", indices.into()),
        ("axis", Constant::int(dim).into()),
    ];
    b.op("gather", &args, x.data_type, &shape)
}
