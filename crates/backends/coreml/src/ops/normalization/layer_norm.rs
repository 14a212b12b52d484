use rustorch_ir::{Op, OpKind};
use smallvec::smallvec;

use crate::builder::{Arg, Builder, Var, Vars};
use crate::constant::Constant;
use crate::kernel::{Kernel, is_float, parameters};

pub(crate) const KERNEL: Kernel = Kernel {
    kind: OpKind::LayerNorm,
    accepts: |call| call.operands_are(is_float),
    emit,
};

/// Weight and bias that are not constants are applied behind the norm.
fn emit(b: &mut Builder, op: &Op, x: &[Var]) -> Vars {
    let op = parameters!(op, LayerNorm);
    let (x, affine) = (&x[0], &x[1..]);
    let rank = x.shape.len();
    let axes: Vec<usize> = (rank - op.dims..rank).collect();
    let mut args: Vec<(&str, Arg)> = vec![
        ("x", x.into()),
        ("axes", Constant::ints(&axes).into()),
        ("epsilon", Constant::number(op.eps.0, x.data_type).into()),
    ];
    let inside = affine.iter().all(|var| var.is_constant);
    if inside {
        args.extend(
            ["gamma", "beta"]
                .into_iter()
                .zip(affine.iter().map(Arg::from)),
        );
    }
    let mut y = b.op("layer_norm", &args, x.data_type, &x.shape);
    for (kind, var) in ["mul", "add"].into_iter().zip(affine).filter(|_| !inside) {
        y = b.binary(kind, &y, var);
    }
    smallvec![y]
}
