//! The listed indices of a dimension: a gather whose index is the same for all lines.

use rustorch_ir::{Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts, Step};

use super::gather::gather;
use crate::emit::{Emitter, GpuKernel};

pub(crate) const KERNEL: KernelEntry<GpuKernel> = KernelEntry {
    kind: OpKind::IndexSelect,
    accepts,
    layouts: Layouts::Any,
    launch: GpuKernel::everywhere(emit),
};

fn accepts(_: &Signature) -> bool {
    true
}

fn emit(step: &Step, emitter: &mut Emitter) {
    let Op::IndexSelect(op) = &step.last().op else {
        return;
    };
    let mut index = step.inputs[1].layout.clone();
    let stride = index.strides[0];
    index.shape = step.output().ty.shape.clone();
    index.strides = index.shape.iter().map(|_| 0).collect();
    index.strides[op.dim] = stride;
    gather(step, op.dim, index, emitter);
}
