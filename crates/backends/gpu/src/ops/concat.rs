//! Operands joined along a dimension, each copied to its place.

use rustorch_ir::{Layout, Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts, Place, Step};

use super::views::{define_rank, for_each, walk, words};
use crate::emit::{Emitter, GpuKernel};

pub(crate) const KERNEL: KernelEntry<GpuKernel> = KernelEntry {
    kind: OpKind::Concat,
    accepts,
    layouts: Layouts::Any,
    launch: GpuKernel::everywhere(emit),
};

fn accepts(_: &Signature) -> bool {
    true
}

fn emit(step: &Step, emitter: &mut Emitter) {
    let Op::Concat(op) = &step.last().op else {
        return;
    };
    let whole = Layout::contiguous(&step.output().ty.shape);
    let mut start = 0;
    for x in &step.inputs {
        let size = x.ty.shape[op.dim];
        let part = Place {
            layout: whole.slice(op.dim, start, size, 1),
            ..step.output().clone()
        };
        copy(x, &part, emitter);
        start += size;
    }
}

/// Appends a copy of `x` to `y`, of one shape and dtype.
pub(super) fn copy(x: &Place, y: &Place, emitter: &mut Emitter) {
    let count = x.layout.elements();
    let mut kernel = for_each("copy", include_str!("../../kernels/copy.c"), count);
    let (x, y) = (words(x), words(y));
    kernel.define_dtype("X", x.ty.dtype);
    kernel.read("x", &x);
    kernel.write("y", &y);
    let rank = walk(&mut kernel, "view", [("x", &x.layout), ("y", &y.layout)]);
    define_rank(&mut kernel, "RANK", rank, "view_rank");
    emitter.launch(kernel);
}
