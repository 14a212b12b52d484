use rustorch_ir::ops::ReduceOp;
use rustorch_ir::{Op, OpKind};
use smallvec::smallvec;

use crate::builder::{Builder, Var, Vars};
use crate::kernel::{Kernel, is_float, parameters};

pub(crate) const KERNEL: Kernel = Kernel {
    kind: OpKind::Reduce,
    accepts: |call| call.operands_are(is_float),
    emit,
};

fn emit(b: &mut Builder, op: &Op, x: &[Var]) -> Vars {
    let op = parameters!(op, Reduce);
    let kind = match op.op {
        ReduceOp::Sum => "reduce_sum",
        ReduceOp::Prod => "reduce_prod",
        ReduceOp::Max => "reduce_max",
        ReduceOp::Min => "reduce_min",
    };
    smallvec![match op.dims.is_empty() {
        true => x[0].clone(),
        false => b.reduce(kind, &x[0], &op.dims),
    }]
}
