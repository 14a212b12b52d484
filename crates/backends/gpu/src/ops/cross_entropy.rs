//! Cross entropy of lines along a dimension with a class each.

use rustorch_ir::{Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts, Step};

use super::lines::Tile;
use super::softmax::lowest;
use super::views::{split, walk};
use crate::emit::{Emitter, GpuKernel};
use crate::kernel::{Kernel, accumulator, halves};

pub(crate) const KERNEL: KernelEntry<GpuKernel> = KernelEntry {
    kind: OpKind::CrossEntropy,
    accepts,
    layouts: Layouts::Any,
    launch: GpuKernel::everywhere(emit),
};

fn accepts(_: &Signature) -> bool {
    true
}

fn emit(step: &Step, emitter: &mut Emitter) {
    let Op::CrossEntropy(op) = &step.last().op else {
        return;
    };
    let [x, classes] = &step.inputs[..] else {
        return;
    };
    let text = concat!(
        include_str!("../../kernels/lines.h"),
        include_str!("../../kernels/cross_entropy.c")
    );
    let (starts, along) = split(&x.layout, op.dim);
    let (count, len) = (starts.elements(), along.elements());
    let tile = Tile::whole_lines(emitter.limits, &starts, &along);
    let mut kernel = Kernel::new("cross_entropy", text, tile.group());
    let dtype = x.ty.dtype;
    kernel.define_dtype("X", dtype);
    kernel.define_dtype("Y", step.output().ty.dtype);
    kernel.define("ACCUMULATOR", accumulator(dtype));
    kernel.define("LOWEST", lowest(dtype));
    kernel.define("HELD", tile.held(len));
    kernel.read("x", x);
    kernel.read("classes", classes);
    kernel.write("y", step.output());
    tile.declare(&mut kernel);
    let views = [("x", &starts), ("class", &classes.layout)];
    walk(&mut kernel, "starts", &views);
    kernel.word("count", count);
    kernel.word("len", len);
    kernel.word("x_step", along.strides[0]);
    kernel.words("ignored", &halves(op.ignore_index as u64));
    // Which one is outside is not looked for: the class that does not count may be as well.
    let classes = format!("the {len} classes of dimension {} of {}", op.dim, x.ty);
    let message = format!("a class is outside {classes}");
    kernel.status("status", emitter.mistake(step, 0, message));
    emitter.launch(kernel.groups(tile.groups(count), 1, 1));
}
