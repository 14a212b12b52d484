use rustorch_ir::{Op, OpKind};
use smallvec::smallvec;

use crate::builder::{Builder, Var, Vars};
use crate::constant::Constant;
use crate::kernel::{Kernel, is_float, parameters};

pub(crate) const KERNEL: Kernel = Kernel {
    kind: OpKind::Softmax,
    accepts: |call| {
        let log = parameters!(call.signature.op, Softmax).log;
        !log && call.operands_are(is_float)
    },
    emit,
};

fn emit(b: &mut Builder, op: &Op, x: &[Var]) -> Vars {
    let axis = Constant::int(parameters!(op, Softmax).dim);
    let args = [("x", (&x[0]).into()), ("axis", axis.into())];
    smallvec![b.op("softmax", &args, x[0].data_type, &x[0].shape)]
}
