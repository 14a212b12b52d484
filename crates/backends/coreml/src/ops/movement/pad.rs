use rustorch_ir::{Op, OpKind, Shape};
use smallvec::smallvec;

use crate::builder::{Builder, Var, Vars};
use crate::constant::Constant;
use crate::kernel::{Kernel, is_float, parameters};

pub(crate) const KERNEL: Kernel = Kernel {
    kind: OpKind::Pad,
    accepts: |call| call.operands_are(is_float),
    emit,
};

fn emit(b: &mut Builder, op: &Op, x: &[Var]) -> Vars {
    let op = parameters!(op, Pad);
    smallvec![match op.padding.is_empty() {
        true => x[0].clone(),
        false => pad(b, &x[0], &op.padding, op.value.as_f64()),
    }]
}

/// `x` with a number put before and behind each dimension.
pub(crate) fn pad(b: &mut Builder, x: &Var, padding: &[(usize, usize)], value: f64) -> Var {
    let sizes = x.shape.iter().zip(padding);
    let shape: Shape = sizes
        .map(|(size, (before, after))| size + before + after)
        .collect();
    let flat: Vec<usize> = padding.iter().flat_map(|&(a, z)| [a, z]).collect();
    let args = [
        ("x", x.into()),
        ("pad", Constant::ints(&flat).into()),
        ("mode", Constant::text("constant").into()),
        ("constant_val", Constant::number(value, x.data_type).into()),
    ];
    b.op("pad", &args, x.data_type, &shape)
}
