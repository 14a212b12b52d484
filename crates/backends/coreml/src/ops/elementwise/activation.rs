use rustorch_ir::ops::ActivationKind;
use rustorch_ir::{Op, OpKind};
use smallvec::smallvec;

use crate::builder::{Builder, Var, Vars};
use crate::constant::Constant;
use crate::kernel::{Kernel, is_float, parameters};

pub(crate) const KERNEL: Kernel = Kernel {
    kind: OpKind::Activation,
    accepts: |call| call.operands_are(is_float),
    emit,
};

fn emit(b: &mut Builder, op: &Op, x: &[Var]) -> Vars {
    let x = &x[0];
    smallvec![match parameters!(op, Activation).kind {
        ActivationKind::Relu => b.unary("relu", x),
        ActivationKind::Sigmoid => b.unary("sigmoid", x),
        ActivationKind::Silu => b.unary("silu", x),
        ActivationKind::Gelu => gelu(b, x, "EXACT"),
        ActivationKind::GeluTanh => gelu(b, x, "TANH_APPROXIMATION"),
    }]
}

fn gelu(b: &mut Builder, x: &Var, mode: &str) -> Var {
    let args = [("x", x.into()), ("mode", Constant::text(mode).into())];
    b.op("gelu", &args, x.data_type, &x.shape)
}
