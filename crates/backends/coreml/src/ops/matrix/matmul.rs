use rustorch_ir::{Op, OpKind, Shape};
use smallvec::smallvec;

use crate::builder::{Builder, Var, Vars};
use crate::constant::Constant;
use crate::kernel::{Kernel, is_float};

pub(crate) const KERNEL: Kernel = Kernel {
    kind: OpKind::Matmul,
    accepts: |call| call.operands_are(is_float),
    emit: |b, _: &Op, x| smallvec![product(b, &x[0], &x[1], false)],
};

/// The product of matrices `[…, m, k]` and `[…, k, n]`, or `[…, n, k]` if that is transposed.
pub(crate) fn product(b: &mut Builder, x: &Var, y: &Var, transposed: bool) -> Var {
    let (batch_x, rows) = x.shape.split_at(x.shape.len() - 2);
    let (batch_y, columns) = y.shape.split_at(y.shape.len() - 2);
    let batch = rustorch_ir::broadcast_shapes("matmul", batch_x, batch_y);
    let mut shape: Shape = batch.expect("inference has checked that the batches broadcast");
    let n = columns[usize::from(!transposed)];
    shape.to_mut().extend_from_slice(&[rows[0], n]);
    let args = [
        ("x", x.into()),
        ("y", y.into()),
        ("transpose_x", Constant::flag(false).into()),
        ("transpose_y", Constant::flag(transposed).into()),
    ];
    b.op("matmul", &args, x.data_type, &shape)
}

/// `y` with a bias added along its last dimension.
pub(crate) fn add_bias(b: &mut Builder, y: Var, bias: Option<&Var>) -> Vars {
    smallvec![match bias {
        Some(bias) => b.binary("add", &y, bias),
        None => y,
    }]
}
