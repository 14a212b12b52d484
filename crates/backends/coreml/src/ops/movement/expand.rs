use rustorch_ir::OpKind;
use smallvec::smallvec;

use crate::kernel::{Kernel, is_any, parameters};

pub(crate) const KERNEL: Kernel = Kernel {
    kind: OpKind::Expand,
    accepts: |call| call.operands_are(is_any),
    emit: |b, op, x| {
        let shape = &parameters!(op, Expand).shape;
        smallvec![match shape.is_empty() {
            true => x[0].clone(),
            false => b.expand(&x[0], shape),
        }]
    },
};
