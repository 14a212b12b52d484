//! Functions of three operands.

use rustorch_ir::ops::TernaryOp;
use rustorch_ir::{DType, Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::element::with_type;
use crate::elementwise::Function;
use crate::fold::Ordered;
use crate::kernel::Misuse;
use crate::launch::Launch;
use crate::math::Real;
use crate::simd::{apply3, apply3_broadcast};

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
    match (op.op, dtype) {
        (TernaryOp::Clamp, DType::F32) => Ok(Function::broadcasting(
            2,
            |[x, low, high], y: &mut [f32]| {
                apply3_broadcast(x, low, high, y, clamped);
            },
        )),
        (TernaryOp::Lerp, DType::F32) => Ok(Function::broadcasting(
            4,
            |[a, b, weight], y: &mut [f32]| {
                apply3_broadcast(a, b, weight, y, between);
            },
        )),
        (TernaryOp::Clamp, _) => with_type!(dtype, reals T => {
            Ok(Function::ternary::<T>(2, clamp))
        }),
        (TernaryOp::Lerp, _) => with_type!(dtype, floats T => {
            Ok(Function::ternary::<T>(4, lerp))
        }),
    }
}

fn clamp<T: Ordered>(x: &[T], low: &[T], high: &[T], y: &mut [T]) {
    apply3(x, low, high, y, clamped);
}

fn lerp<T: Real>(a: &[T], b: &[T], weight: &[T], y: &mut [T]) {
    apply3(a, b, weight, y, between);
}

#[inline(always)]
fn clamped<T: Ordered>(x: T, low: T, high: T) -> T {
    x.larger(low).smaller(high)
}

#[inline(always)]
fn between<T: Real>(a: T, b: T, weight: T) -> T {
    let way = b - a;
    let from_start = a + way * weight;
    let from_end = b - way * (T::one() - weight);
    let is_near = weight.abs() < T::constant(0.5);
    if is_near { from_start } else { from_end }
}
