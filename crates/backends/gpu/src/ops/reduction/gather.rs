//! Elements that an index picks along a dimension.

use rustorch_ir::{Layout, Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts, Place, Step};

use crate::emit::{Emitter, GpuKernel};
use crate::ops::views::{WIDEST, define_rank, for_several, vector, walk, widened, words};

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
    gather(step, op.dim, step.inputs[1].layout.clone(), emitter);
}

/// Elements that are picked.
pub(in crate::ops) struct Picked<'a> {
    /// Source of the elements.
    pub(in crate::ops) x: &'a Place,
    /// Starts in it of the result's lines, as a view of the result's shape.
    pub(in crate::ops) lines: Layout,
    /// Elements from one that an index picks to the next, and how many there are.
    pub(in crate::ops) step: usize,
    pub(in crate::ops) size: usize,
    /// The indices, as a view of the result's shape.
    pub(in crate::ops) index: (&'a Place, Layout),
}

impl Picked<'_> {
    /// Appends the kernel, which reports `code` of indices that are not a place.
    pub(in crate::ops) fn emit(&self, step: &Step, code: u32, emitter: &mut Emitter) {
        let (x, y) = (words(self.x), words(step.output()));
        let (index, index_view) = &self.index;
        let whole = Layout::contiguous(&self.lines.shape);
        let [lines, whole, index_view] = Layout::collapse([&self.lines, &whole, index_view]);
        let size = x.ty.dtype.size().unwrap_or(WIDEST);
        let views = [lines, whole];
        let vector = vector(
            size,
            &views,
            std::slice::from_ref(&index_view),
            &[self.step],
        );
        let x = widened(&x, &views[0], vector);
        let y = widened(&y, &views[1], vector);
        let index_view = Layout {
            shape: x.layout.shape.clone(),
            ..index_view
        };
        let text = concat!(
            include_str!("../../../kernels/offsets.h"),
            include_str!("../../../kernels/gather.c")
        );
        let mut kernel = for_several("gather", text, y.layout.elements(), 1, emitter.limits);
        kernel.define_dtype("X", x.ty.dtype);
        kernel.define_dtype("INDEX", index.ty.dtype);
        kernel.read("x", &x);
        kernel.read("index", index);
        kernel.write("y", &y);
        kernel.word("step", self.step / vector);
        kernel.word("size", self.size);
        let views = [("x", &x.layout), ("index", &index_view)];
        let rank = walk(&mut kernel, "view", &views);
        define_rank(&mut kernel, "RANK", rank, "view_rank");
        kernel.status("status", code);
        emitter.launch(kernel);
    }
}

/// Appends the kernel for a result of `index`'s shape; `index` is the second operand, which
/// says for each element where along `dim` it is from.
pub(in crate::ops) fn gather(step: &Step, dim: usize, index: Layout, emitter: &mut Emitter) {
    let x = &step.inputs[0];
    // The index is a dimension's only step in x.
    let mut lines = x.layout.clone();
    lines.shape = index.shape.clone();
    let picked = Picked {
        x,
        step: std::mem::take(&mut lines.strides[dim]),
        size: x.ty.shape[dim],
        lines,
        index: (&step.inputs[1], index),
    };
    picked.emit(step, outside(step, dim, emitter), emitter);
}

/// The code to report that an index, the second operand, is not a place along dimension `dim` of the
/// first.
pub(in crate::ops) fn outside(step: &Step, dim: usize, emitter: &mut Emitter) -> u32 {
    let (x, index) = (&step.inputs[0].ty, &step.inputs[1]);
    let size = x.shape[dim];
    let range = format!("the {size} indices of dimension {dim} of {x}");
    emitter.outside(step, index, size, range)
}
