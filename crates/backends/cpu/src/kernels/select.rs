//! Elements of one operand or another.

use std::hint::select_unpredictable;

use rustorch_ir::{OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::element::{Element, with_type};
use crate::elementwise::{for_blocks, operand};
use crate::kernel::{Args, Launch, Misuse};

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::Where,
    accepts,
    layouts: Layouts::Any,
    launch,
};

fn accepts(_: &Signature) -> bool {
    true
}

fn launch(mut args: Args) -> Result<(), Misuse> {
    with_type!(args.output.dtype(), words T => {
        select::<T>(&mut args);
        Ok(())
    })
}

fn select<T: Element<Compute = T>>(args: &mut Args) {
    let operands = (
        operand::<u8>(args, 0),
        operand::<T>(args, 1),
        operand::<T>(args, 2),
    );
    for_blocks::<T, _>(args, 1, &operands, |(condition, a, b), at, out| {
        let condition = condition.read(at, out.len());
        let either = a.read(at, out.len()).iter().zip(b.read(at, out.len()));
        for ((out, &condition), (&a, &b)) in out.iter_mut().zip(condition).zip(either) {
            *out = select_unpredictable(condition != 0, a, b);
        }
    });
}
