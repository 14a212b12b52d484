//! Channels normalised by given statistics.

use rustorch_ir::{DType, Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts, Step};

use crate::emit::{Emitter, GpuKernel};
use crate::kernel::{Kernel, accumulator};
use crate::ops::views::{PARTS, WIDEST};

pub(crate) const KERNEL: KernelEntry<GpuKernel> = KernelEntry {
    kind: OpKind::BatchNorm,
    accepts,
    layouts: Layouts::Contiguous,
    launch: GpuKernel::everywhere(emit),
};

/// Work-items of a group.
const GROUP: u32 = 256;

/// Elements, or vectors of them, of a work-item, where there are many.
const EACH: usize = 4;

/// Elements that keep every unit of a GPU busy, even if a work-item has several.
const MANY: usize = 1 << 20;

fn accepts(_: &Signature) -> bool {
    true
}

fn emit(step: &Step, emitter: &mut Emitter) {
    let Op::BatchNorm(op) = &step.last().op else {
        return;
    };
    let y = step.output();
    let shape = &y.ty.shape;
    let count = shape.elements();
    let pixels = shape[2..].iter().product();
    let vector = vector(y.ty.dtype, pixels, step);
    let count = count / vector;
    let each = if count >= MANY { EACH } else { 1 };
    let text = concat!(
        include_str!("../../../kernels/vectors.h"),
        include_str!("../../../kernels/batch_norm.c")
    );
    let mut kernel = Kernel::new("batch_norm", text, GROUP);
    kernel.define_dtype("X", y.ty.dtype);
    kernel.define("ACCUMULATOR", accumulator(y.ty.dtype));
    kernel.define("EACH", each);
    kernel.define("VECTOR", vector);
    kernel.real("EPS", y.ty.dtype, op.eps.0);
    for (operand, name) in step.inputs.iter().zip(["x", "mean", "var", "w", "b"]) {
        kernel.read(name, operand);
    }
    kernel.define("HAS_WEIGHT", u8::from(step.inputs.len() > 3));
    kernel.define("HAS_BIAS", u8::from(step.inputs.len() > 4));
    kernel.write("y", y);
    kernel.word("count", count);
    kernel.word("channels", shape[1]);
    kernel.word("pixels", pixels / vector);
    emitter.launch(kernel.groups(count.div_ceil(each * GROUP as usize), 1, 1));
}

/// Neighbours of 16 bytes that are of one channel, if all are in such; else 1.
fn vector(dtype: DType, pixels: usize, step: &Step) -> usize {
    let vector = match dtype.size().filter(|_| PARTS.contains(&dtype)) {
        Some(size) => WIDEST / size,
        None => return 1,
    };
    let offsets = [&step.inputs[0], step.output()].map(|place| place.layout.offset);
    let fits = [pixels]
        .iter()
        .chain(&offsets)
        .all(|n| n.is_multiple_of(vector));
    if fits { vector } else { 1 }
}
