use rustorch_ir::{Op, OpKind, Shape};
use smallvec::smallvec;

use crate::builder::{Builder, Var, Vars};
use crate::constant::Constant;
use crate::kernel::{Kernel, is_any, parameters};

pub(crate) const KERNEL: Kernel = Kernel {
    kind: OpKind::Permute,
    accepts: |call| call.operands_are(is_any),
    emit,
};

fn emit(b: &mut Builder, op: &Op, x: &[Var]) -> Vars {
    let (dims, x) = (&parameters!(op, Permute).dims, &x[0]);
    if dims.is_sorted() {
        return smallvec![x.clone()];
    }
    let shape: Shape = dims.iter().map(|&d| x.shape[d]).collect();
    let args = [("x", x.into()), ("perm", Constant::ints(dims).into())];
    smallvec![b.op("transpose", &args, x.data_type, &shape)]
}
