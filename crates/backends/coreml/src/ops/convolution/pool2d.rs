use rustorch_ir::ops::PoolKind;
use rustorch_ir::{Op, OpKind};
use smallvec::smallvec;

use crate::builder::{Arg, Builder, Var, Vars};
use crate::constant::Constant;
use crate::kernel::{Call, Kernel, is_float, parameters};

pub(crate) const KERNEL: Kernel = Kernel {
    kind: OpKind::Pool2d,
    accepts,
    emit,
};

/// Windows without gaps, and no indices.
fn accepts(call: &Call) -> bool {
    let op = parameters!(call.signature.op, Pool2d);
    call.operands_are(is_float) && op.dilation == [1, 1] && op.indices.is_none()
}

fn emit(b: &mut Builder, op: &Op, x: &[Var]) -> Vars {
    let (op, x) = (parameters!(op, Pool2d), &x[0]);
    let side = |i: usize| (x.shape[2 + i] + 2 * op.padding[i] - op.kernel[i]) / op.stride[i] + 1;
    let shape = [x.shape[0], x.shape[1], side(0), side(1)];
    let [top, left] = op.padding;
    let mut args: Vec<(&str, Arg)> = vec![
        ("x", x.into()),
        ("kernel_sizes", Constant::ints(&op.kernel).into()),
        ("strides", Constant::ints(&op.stride).into()),
        ("pad_type", Constant::text("custom").into()),
        ("pad", Constant::ints(&[top, top, left, left]).into()),
        ("ceil_mode", Constant::flag(false).into()),
    ];
    let kind = match op.kind {
        PoolKind::Max => "max_pool",
        PoolKind::Average => {
            let counts = Constant::flag(false);
            args.push(("exclude_padding_from_average", counts.into()));
            "avg_pool"
        }
    };
    smallvec![b.op(kind, &args, x.data_type, &shape)]
}
