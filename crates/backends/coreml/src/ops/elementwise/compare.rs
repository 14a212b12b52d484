use rustorch_ir::ops::CompareOp;
use rustorch_ir::{Op, OpKind};
use smallvec::smallvec;

use crate::builder::{Builder, Var, Vars};
use crate::kernel::{Kernel, is_float, parameters};

pub(crate) const KERNEL: Kernel = Kernel {
    kind: OpKind::Compare,
    accepts: |call| call.operands_are(is_float),
    emit,
};

fn emit(b: &mut Builder, op: &Op, x: &[Var]) -> Vars {
    let name = match parameters!(op, Compare).op {
        CompareOp::Eq => "equal",
        CompareOp::Ne => "not_equal",
        CompareOp::Lt => "less",
        CompareOp::Le => "less_equal",
        CompareOp::Gt => "greater",
        CompareOp::Ge => "greater_equal",
    };
    smallvec![b.compare(name, &x[0], &x[1])]
}
