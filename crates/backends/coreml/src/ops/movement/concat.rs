use rustorch_ir::{Op, OpKind};
use smallvec::smallvec;

use crate::builder::{Arg, Builder, Var, Vars};
use crate::constant::Constant;
use crate::kernel::{Kernel, is_number, parameters};

pub(crate) const KERNEL: Kernel = Kernel {
    kind: OpKind::Concat,
    accepts: |call| call.operands_are(is_number),
    emit,
};

fn emit(b: &mut Builder, op: &Op, x: &[Var]) -> Vars {
    match x {
        [only] => smallvec![only.clone()],
        _ => smallvec![concat(b, x, parameters!(op, Concat).dim)],
    }
}

/// Several values behind each other.
pub(crate) fn concat(b: &mut Builder, x: &[Var], dim: usize) -> Var {
    let size = x.iter().map(|x| x.shape[dim]).sum();
    let shape = x[0].shape.clone().with_dim(dim, size);
    let args = [
        ("values", Arg::List(x)),
        ("axis", Constant::int(dim).into()),
        ("interleave", Constant::flag(false).into()),
    ];
    b.op("concat", &args, x[0].data_type, &shape)
}
