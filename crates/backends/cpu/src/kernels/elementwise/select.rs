//! Elements of one operand or another.

use std::hint::select_unpredictable;

use bytemuck::{cast_slice, cast_slice_mut};
use rustorch_ir::{OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::element::with_type;
use crate::elementwise::Function;
use crate::kernel::Misuse;
use crate::launch::Launch;
use crate::simd::apply3;

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::Where,
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
    with_type!(signature.output().dtype, words T => {
        Ok(Function::of_bytes(1, |[condition, a, b], y| {
            let (a, b): (&[T], &[T]) = (cast_slice(a), cast_slice(b));
            let choose = |condition, a, b| select_unpredictable(condition != 0, a, b);
            apply3(condition, a, b, cast_slice_mut(y), choose);
        }))
    })
}
