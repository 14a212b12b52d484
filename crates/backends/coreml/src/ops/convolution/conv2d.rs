use rustorch_ir::{Op, OpKind};
use smallvec::smallvec;

use crate::builder::{Arg, Builder, Var, Vars};
use crate::constant::Constant;
use crate::kernel::{Call, Kernel, is_float, parameters};

pub(crate) const KERNEL: Kernel = Kernel {
    kind: OpKind::Conv2d,
    accepts,
    emit,
};

/// Weights that come with a run do for windows without gaps alone.
fn accepts(call: &Call) -> bool {
    let op = parameters!(call.signature.op, Conv2d);
    call.operands_are(is_float) && (op.dilation == [1, 1] || call.is_constant(1))
}

fn emit(b: &mut Builder, op: &Op, x: &[Var]) -> Vars {
    let op = parameters!(op, Conv2d);
    let (x, weight, bias) = (&x[0], &x[1], x.get(2));
    let side = |i: usize| {
        let reach = op.dilation[i] * (weight.shape[2 + i] - 1) + 1;
        (x.shape[2 + i] + 2 * op.padding[i] - reach) / op.stride[i] + 1
    };
    let shape = [x.shape[0], weight.shape[0], side(0), side(1)];
    let [top, left] = op.padding;
    let mut args: Vec<(&str, Arg)> = vec![
        ("x", x.into()),
        ("weight", weight.into()),
        ("strides", Constant::ints(&op.stride).into()),
        ("pad_type", Constant::text("custom").into()),
        ("pad", Constant::ints(&[top, top, left, left]).into()),
        ("dilations", Constant::ints(&op.dilation).into()),
        ("groups", Constant::int(op.groups).into()),
    ];
    let (inside, behind) = split_bias(bias);
    args.extend(inside.map(|bias| ("bias", bias.into())));
    let y = b.op("conv", &args, x.data_type, &shape);
    add_to_channels(b, y, behind)
}

/// A bias that the operation itself adds, as it does constants, and one that is added behind it.
pub(crate) fn split_bias(bias: Option<&Var>) -> (Option<&Var>, Option<&Var>) {
    match bias {
        Some(bias) if bias.is_constant => (Some(bias), None),
        other => (None, other),
    }
}

/// `y` `[n, c, h, w]` with a bias `[c]` added.
pub(crate) fn add_to_channels(b: &mut Builder, y: Var, bias: Option<&Var>) -> Vars {
    let Some(bias) = bias else {
        return smallvec![y];
    };
    let bias = b.reshape(bias, &[1, bias.shape[0], 1, 1]);
    smallvec![b.binary("add", &y, &bias)]
}
