//! Elements that an index picks along a dimension.

use rustorch_ir::{Layout, Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts, Step};

use super::views::{define_rank, for_each, walk, words};
use crate::emit::{Emitter, GpuKernel};

pub(crate) const KERNEL: KernelEntry<GpuKernel> = KernelEntry {
    kind: OpKind::Gather,
    accepts,
    layouts: Layouts::Any,
    launch: GpuKernel::everywhere(emit),
};

fn accepts(_: &Signature) -> bool {
    true
}

fn emit(step: &Step, emitter: &mut Emitter) {
    let Op::Gather(op) = &step.last().op else {
        return;
    };
    gather(step, op.dim, &step.inputs[1].layout, emitter);
}

/// Appends the kernel for a result of `index`'s shape; `index` is the second operand, which
/// says for each element where along `dim` it is from.
pub(super) fn gather(step: &Step, dim: usize, index: &Layout, emitter: &mut Emitter) {
    let (x, y) = (words(&step.inputs[0]), words(step.output()));
    let count = y.ty.shape.elements();
    let mut kernel = for_each("gather", include_str!("../../kernels/gather.c"), count);
    kernel.define_dtype("X", x.ty.dtype);
    kernel.define_dtype("INDEX", step.inputs[1].ty.dtype);
    kernel.read("x", &x);
    kernel.read("index", &step.inputs[1]);
    kernel.write("y", &y);
    // The index is a dimension's only step in x.
    let mut lines = x.layout.clone();
    lines.shape = index.shape.clone();
    kernel.word("step", std::mem::take(&mut lines.strides[dim]));
    kernel.word("size", x.ty.shape[dim]);
    let rank = walk(&mut kernel, "view", [("x", &lines), ("index", index)]);
    define_rank(&mut kernel, "RANK", rank, "view_rank");
    kernel.status("status", outside(step, dim, emitter));
    emitter.launch(kernel);
}

/// The code to report that an index, the second operand, is no place along dimension `dim` of the
/// first.
pub(super) fn outside(step: &Step, dim: usize, emitter: &mut Emitter) -> u32 {
    let (x, index) = (&step.inputs[0].ty, &step.inputs[1]);
    let size = x.shape[dim];
    let range = format!("the {size} indices of dimension {dim} of {x}");
    emitter.outside(step, index, size, range)
}
