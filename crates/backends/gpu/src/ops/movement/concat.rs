//! Operands joined along a dimension, each copied to its place.

use rustorch_ir::{Layout, Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts, Place, Step};

use super::views::{WIDEST, for_several, vector, walk, widened, words};
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
    let mut copies = Vec::with_capacity(step.inputs.len());
    for x in step.inputs.iter().filter(|x| x.layout.elements() > 0) {
        let size = x.ty.shape[op.dim];
        let part = Place {
            layout: whole.slice(op.dim, start, size, 1),
            ..step.output().clone()
        };
        // Whoever made it may have written it there.
        if (x.slot, &x.layout) != (part.slot, &part.layout) {
            copies.push((x.clone(), part));
        }
        start += size;
    }
    copies.chunks(VIEWS).for_each(|some| launch(some, emitter));
}

/// Views that a launch copies, at most.
const VIEWS: usize = 4;

/// Appends a copy of `x` to `y`, of one shape and dtype.
pub(in crate::ops) fn copy(x: &Place, y: &Place, emitter: &mut Emitter) {
    launch(&[(x.clone(), y.clone())], emitter);
}

/// Copies up to [`VIEWS`] views of one dtype to others.
fn launch(copies: &[(Place, Place)], emitter: &mut Emitter) {
    let pairs = copies.iter().map(|(x, y)| {
        let (x, y) = (words(x), words(y));
        let views = Layout::collapse([&x.layout, &y.layout]);
        let vector = vector(x.ty.dtype.size().unwrap_or(WIDEST), &views, &[], &[]);
        (x, y, views, vector)
    });
    let pairs: Vec<_> = pairs.collect();
    let widest = pairs.iter().map(|&(.., vector)| vector).min().unwrap_or(1);
    let widen = |(x, y, [from, to], _): &(Place, Place, [Layout; 2], usize)| {
        [widened(x, from, widest), widened(y, to, widest)]
    };
    let pairs: Vec<[Place; 2]> = pairs.iter().map(widen).collect();
    let counts = pairs.iter().map(|[x, _]| x.layout.elements());
    let most = counts.max().unwrap_or(0);
    let text = concat!(
        include_str!("../../../kernels/offsets.h"),
        include_str!("../../../kernels/copy.c")
    );
    let mut kernel = for_several("copy", text, most, pairs.len(), emitter.limits);
    kernel.define("VIEWS", pairs.len());
    for (k, [x, y]) in pairs.iter().enumerate() {
        kernel.read(&format!("x{k}"), x);
        kernel.write(&format!("y{k}"), y);
        kernel.word(&format!("count{k}"), x.layout.elements());
        let [from, to] = [format!("x{k}"), format!("y{k}")];
        let views = [(from.as_str(), &x.layout), (to.as_str(), &y.layout)];
        walk(&mut kernel, &format!("view{k}"), &views);
    }
    if let Some([x, _]) = pairs.first() {
        kernel.define_dtype("X", x.ty.dtype);
    }
    emitter.launch(kernel);
}
