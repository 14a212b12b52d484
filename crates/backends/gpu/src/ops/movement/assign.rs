//! Writing over a state as a whole.

use rustorch_ir::{OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts, Step};

use super::concat::copy;
use crate::emit::{Emitter, GpuKernel};

pub(crate) const KERNEL: KernelEntry<GpuKernel> = KernelEntry {
    kind: OpKind::Assign,
    accepts,
    layouts: Layouts::Any,
    launch: GpuKernel::everywhere(emit),
};

fn accepts(_: &Signature) -> bool {
    true
}

fn emit(step: &Step, emitter: &mut Emitter) {
    copy(&step.inputs[1], step.output(), emitter);
}
