use rustorch_ir::{Op, OpKind};
use smallvec::smallvec;

use crate::builder::{Builder, Var, Vars};
use crate::constant::Constant;
use crate::kernel::{Call, Kernel, is_float, parameters};
use crate::ops::unary::log;

pub(crate) const KERNEL: Kernel = Kernel {
    kind: OpKind::Softmax,
    accepts,
    emit,
};

/// The logarithm's sums are at most the number of elements, which halves have to be able to hold.
fn accepts(call: &Call) -> bool {
    let op = parameters!(call.signature.op, Softmax);
    let size = call.signature.inputs[0].shape[op.dim];
    call.operands_are(is_float) && (!op.log || size <= 60_000)
}

fn emit(b: &mut Builder, op: &Op, x: &[Var]) -> Vars {
    let op = parameters!(op, Softmax);
    let x = &x[0];
    if op.log {
        return smallvec![logarithm(b, x, op.dim)];
    }
    let args = [("x", x.into()), ("axis", Constant::int(op.dim).into())];
    smallvec![b.op("softmax", &args, x.data_type, &x.shape)]
}

/// `x - max - log Σ exp(x - max)`.
fn logarithm(b: &mut Builder, x: &Var, dim: usize) -> Var {
    let max = b.reduce("reduce_max", x, &[dim]);
    let shifted = b.binary("sub", x, &max);
    let exp = b.unary("exp", &shifted);
    let sum = b.reduce("reduce_sum", &exp, &[dim]);
    let log = log(b, &sum);
    b.binary("sub", &shifted, &log)
}
