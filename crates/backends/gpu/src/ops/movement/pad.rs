//! A value around a tensor.

use rustorch_ir::ops::Full;
use rustorch_ir::{Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts, Step};

use super::views::{dimensions, for_each};
use crate::emit::{Emitter, GpuKernel};
use crate::ops::pointwise::constant;

pub(crate) const KERNEL: KernelEntry<GpuKernel> = KernelEntry {
    kind: OpKind::Pad,
    accepts,
    layouts: Layouts::Any,
    launch: GpuKernel::everywhere(emit),
};

fn accepts(_: &Signature) -> bool {
    true
}

fn emit(step: &Step, emitter: &mut Emitter) {
    let Op::Pad(op) = &step.last().op else {
        return;
    };
    let (x, y) = (&step.inputs[0], step.output());
    let count = y.ty.shape.elements();
    let mut kernel = for_each("pad", include_str!("../../../kernels/pad.c"), count);
    let value = Full {
        shape: [].into(),
        value: op.value,
        dtype: x.ty.dtype,
    };
    let value = constant(0, &value, Some(&mut kernel));
    kernel.define("VALUE", value);
    kernel.define_dtype("X", x.ty.dtype);
    kernel.read("x", x);
    kernel.write("y", y);
    kernel.word("rank", y.ty.rank());
    let before: Vec<usize> = op.padding.iter().map(|&(before, _)| before).collect();
    dimensions(&mut kernel, "shape", &y.ty.shape);
    dimensions(&mut kernel, "before", &before);
    dimensions(&mut kernel, "sizes", &x.ty.shape);
    dimensions(&mut kernel, "strides", &x.layout.strides);
    emitter.launch(kernel);
}
