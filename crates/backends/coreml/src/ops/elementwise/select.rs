use rustorch_ir::{Op, OpKind, Shape};
use smallvec::smallvec;

use crate::builder::{Builder, Var, Vars};
use crate::kernel::{Kernel, is_any};

pub(crate) const KERNEL: Kernel = Kernel {
    kind: OpKind::Where,
    accepts: |call| call.operands_are(is_any),
    emit,
};

/// With operands of one shape: that of the condition is not looked at where types are inferred.
fn emit(b: &mut Builder, _: &Op, x: &[Var]) -> Vars {
    let shape = x.iter().skip(1).fold(x[0].shape.clone(), |shape, x| {
        let both: Result<Shape, _> = rustorch_ir::broadcast_shapes("where", &shape, &x.shape);
        both.expect("inference has checked that the shapes broadcast")
    });
    let [condition, a, other] = [0, 1, 2].map(|i| b.expand(&x[i], &shape));
    smallvec![b.select(&condition, &a, &other)]
}
