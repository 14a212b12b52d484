//! Activation functions in one pass.

use rustorch_ir::ops::ActivationKind;
use rustorch_ir::{Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::element::{Element, with_type};
use crate::elementwise::Function;
use crate::kernel::Misuse;
use crate::launch::Launch;
use crate::math::{Real, gelu_tanh, relu, silu};
use crate::simd::{apply, apply_function};

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::Activation,
    accepts,
    layouts: Layouts::Any,
    launch: Launch::Elementwise {
        function,
        check: None,
    },
};

/// Cost of an exponential beside an addition.
const WORK: usize = 4;

fn accepts(_: &Signature) -> bool {
    true
}

fn function(signature: &Signature) -> Result<Function, Misuse> {
    let Op::Activation(op) = signature.op else {
        return Err(Misuse("not an activation".to_owned()));
    };
    with_type!(signature.output().dtype, floats T => {
        Ok(Function::unary::<T, T>(WORK, real::<<T as Element>::Compute>(op.kind)))
    })
}

fn real<T: Real>(kind: ActivationKind) -> fn(&[T], &mut [T]) {
    match kind {
        ActivationKind::Relu => |x, y| apply(x, y, relu),
        ActivationKind::Sigmoid => |x, y| apply_function(x, y, |m, x: T| x.sigmoid(m)),
        ActivationKind::Silu => |x, y| apply_function(x, y, silu),
        ActivationKind::Gelu => |x, y| apply_function(x, y, |m, x: T| x.gelu(m)),
        ActivationKind::GeluTanh => |x, y| apply_function(x, y, gelu_tanh),
    }
}
