use rustorch_ir::{Op, OpKind};

use super::conv2d::{add_to_channels, split_bias};
use crate::builder::{Arg, Builder, Var, Vars};
use crate::constant::Constant;
use crate::kernel::{Call, Kernel, is_float, parameters};
use crate::ops::pad::pad;

pub(crate) const KERNEL: Kernel = Kernel {
    kind: OpKind::ConvTranspose2d,
    accepts: |call: &Call| call.operands_are(is_float) && call.is_constant(1),
    emit,
};

/// For rows and columns that are added at the end, fewer are cut there. If there are not enough,
/// zeros are put behind, as nothing is spread to them.
fn emit(b: &mut Builder, op: &Op, x: &[Var]) -> Vars {
    let op = parameters!(op, ConvTranspose2d);
    let (x, weight, bias) = (&x[0], &x[1], x.get(2));
    let cut = |i: usize| op.padding[i].saturating_sub(op.output_padding[i]);
    let added = |i: usize| op.output_padding[i].saturating_sub(op.padding[i]);
    let side = |i: usize| {
        let spread = (x.shape[2 + i] - 1) * op.stride[i];
        let reach = op.dilation[i] * (weight.shape[2 + i] - 1) + 1;
        (spread + reach).checked_sub(op.padding[i] + cut(i))
    };
    let sides = [0, 1].map(|i| side(i).unwrap_or_default());
    let shape = [x.shape[0], weight.shape[1] * op.groups, sides[0], sides[1]];
    let padding = [op.padding[0], cut(0), op.padding[1], cut(1)];
    let mut args: Vec<(&str, Arg)> = vec![
        ("x", x.into()),
        ("weight", weight.into()),
        ("strides", Constant::ints(&op.stride).into()),
        ("pad_type", Constant::text("custom").into()),
        ("pad", Constant::ints(&padding).into()),
        ("dilations", Constant::ints(&op.dilation).into()),
        ("groups", Constant::int(op.groups).into()),
    ];
    let ends = [added(0), added(1)];
    let (inside, behind) = match ends {
        [0, 0] => split_bias(bias),
        _ => (None, bias),
    };
    args.extend(inside.map(|bias| ("bias", bias.into())));
    let mut y = b.op("conv_transpose", &args, x.data_type, &shape);
    if ends != [0, 0] {
        y = pad(b, &y, &[(0, 0), (0, 0), (0, ends[0]), (0, ends[1])], 0.0);
    }
    add_to_channels(b, y, behind)
}
