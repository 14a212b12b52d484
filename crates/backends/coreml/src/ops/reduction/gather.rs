use rustorch_ir::{Op, OpKind};
use smallvec::smallvec;

use crate::builder::{Builder, Var, Vars};
use crate::constant::Constant;
use crate::kernel::{Kernel, is_number, parameters};
use crate::ops::slice::slice;

pub(crate) const KERNEL: Kernel = Kernel {
    kind: OpKind::Gather,
    accepts: |call| call.operands_are(is_number),
    emit,
};

/// `gather_along_axis` wants the other sizes to be equal.
fn emit(b: &mut Builder, op: &Op, x: &[Var]) -> Vars {
    let dim = parameters!(op, Gather).dim;
    let index = &x[1];
    let mut x = x[0].clone();
    for (d, &size) in index.shape.iter().enumerate() {
        if d != dim && size != x.shape[d] {
            x = slice(b, &x, d, (0, size), 1);
        }
    }
    let args = [
        ("x", (&x).into()),
        ("indices", index.into()),
        ("axis", Constant::int(dim).into()),
    ];
    smallvec![b.op("gather_along_axis", &args, x.data_type, &index.shape)]
}
