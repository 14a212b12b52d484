use rustorch_ir::{Op, OpKind};
use smallvec::smallvec;

use crate::builder::{Arg, Builder, Var, Vars};
use crate::constant::Constant;
use crate::kernel::{Kernel, is_float, parameters};

pub(crate) const KERNEL: Kernel = Kernel {
    kind: OpKind::BatchNorm,
    accepts: |call| call.operands_are(is_float),
    emit,
};

/// `batch_norm` takes constants, and three dimensions or more.
fn emit(b: &mut Builder, op: &Op, x: &[Var]) -> Vars {
    let eps = parameters!(op, BatchNorm).eps.0;
    let (x, others) = (&x[0], &x[1..]);
    if x.shape.len() < 3 || !others.iter().all(|var| var.is_constant) {
        return smallvec![composed(b, x, others, eps)];
    }
    let names = ["mean", "variance", "gamma", "beta"];
    let mut args: Vec<(&str, Arg)> = vec![
        ("x", x.into()),
        ("epsilon", Constant::number(eps, x.data_type).into()),
    ];
    args.extend(names.into_iter().zip(others.iter().map(Arg::from)));
    smallvec![b.op("batch_norm", &args, x.data_type, &x.shape)]
}

fn composed(b: &mut Builder, x: &Var, others: &[Var], eps: f64) -> Var {
    let channels: Vec<usize> = (x.shape[1..].iter().enumerate())
        .map(|(i, &c)| if i == 0 { c } else { 1 })
        .collect();
    let others: Vec<Var> = others.iter().map(|var| b.reshape(var, &channels)).collect();
    let centred = b.binary("sub", x, &others[0]);
    let eps = b.number(eps, x);
    let variance = b.binary("add", &others[1], &eps);
    let root = b.unary("sqrt", &variance);
    let mut y = b.binary("real_div", &centred, &root);
    for (kind, var) in ["mul", "add"].into_iter().zip(&others[2..]) {
        y = b.binary(kind, &y, var);
    }
    y
}
