//! Functions of three operands.

use rustorch_ir::ops::TernaryOp;
use rustorch_ir::{Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::element::{Element, with_type};
use crate::elementwise::{Function, Loop3};
use crate::fold::Ordered;
use crate::kernel::Misuse;
use crate::launch::Launch;
use crate::math::Real;
use crate::simd::apply3;

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::Ternary,
    accepts,
    layouts: Layouts::Any,
    launch: Launch::Elementwise {
        function,
        check: None,
    },
};

fn accepts(_: &Signature) -> bool {
    true
}

fn function(signature: &Signature) -> Result<Function, Misuse> {
    let Op::Ternary(op) = signature.op else {
        return Err(Misuse("not a ternary operation".to_owned()));
    };
    let dtype = signature.output().dtype;
    match op.op {
        TernaryOp::Clamp => with_type!(dtype, reals T => {
            Ok(Function::ternary::<T>(2, clamp::<<T as Element>::Compute>()))
        }),
        TernaryOp::Lerp => with_type!(dtype, floats T => {
            Ok(Function::ternary::<T>(4, lerp::<<T as Element>::Compute>()))
        }),
    }
}

fn clamp<T: Ordered>() -> Loop3<T> {
    |x, low, high, y| apply3(x, low, high, y, |x, low, high| x.larger(low).smaller(high))
}

fn lerp<T: Real>() -> Loop3<T> {
    |a, b, weight, y| {
        apply3(a, b, weight, y, |a, b, weight| {
            let way = b - a;
            let from_start = a + way * weight;
            let from_end = b - way * (T::one() - weight);
            let is_near = weight.abs() < T::constant(0.5);
            if is_near { from_start } else { from_end }
        });
    }
}
