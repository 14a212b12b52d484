//! Operands joined along a dimension, each copied to its place.

use rustorch_ir::{Layout, Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts, Place, Step};

use super::views::{WIDEST, define_rank, for_several, vector, walk, widened, words};
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
    let (x, y) = (words(x), words(y));
    let views = Layout::collapse([&x.layout, &y.layout]);
    let vector = vector(x.ty.dtype.size().unwrap_or(WIDEST), &views, &[], &[]);
    let [x, y] = [(&x, &views[0]), (&y, &views[1])].map(|(place, v)| widened(place, v, vector));
    let text = include_str!("../../kernels/copy.c");
    let mut kernel = for_several("copy", text, x.layout.elements(), emitter.limits);
    kernel.define_dtype("X", x.ty.dtype);
    kernel.read("x", &x);
    kernel.write("y", &y);
    let rank = walk(&mut kernel, "view", &[("x", &x.layout), ("y", &y.layout)]);
    define_rank(&mut kernel, "RANK", rank, "view_rank");
    emitter.launch(kernel);
}
