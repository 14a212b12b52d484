//! Weighted sums of elements along a dimension.

use rustorch_ir::{Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts, Step};

use crate::emit::{Emitter, GpuKernel};
use crate::kernel::accumulator;
use crate::ops::gather::outside;
use crate::ops::views::{define_rank, for_each, walk};

pub(crate) const KERNEL: KernelEntry<GpuKernel> = KernelEntry {
    kind: OpKind::Resample,
    accepts,
    layouts: Layouts::Any,
    launch: GpuKernel::everywhere(emit),
};

fn accepts(_: &Signature) -> bool {
    true
}

fn emit(step: &Step, emitter: &mut Emitter) {
    let Op::Resample(op) = &step.last().op else {
        return;
    };
    let [x, places, weights] = &step.inputs[..] else {
        return;
    };
    let y = step.output();
    let count = y.ty.shape.elements();
    let mut kernel = for_each(
        "resample",
        include_str!("../../../kernels/resample.c"),
        count,
    );
    kernel.define_dtype("X", x.ty.dtype);
    kernel.define_dtype("INDEX", places.ty.dtype);
    kernel.define("ACCUMULATOR", accumulator(x.ty.dtype));
    kernel.read("x", x);
    kernel.read("places", places);
    kernel.read("weights", weights);
    kernel.write("y", y);
    // The place is a dimension's only step in x.
    let mut lines = x.layout.clone();
    lines.shape = y.ty.shape.clone();
    kernel.word("step", std::mem::take(&mut lines.strides[op.dim]));
    kernel.word("size", x.ty.shape[op.dim]);
    kernel.word("len", y.ty.shape[op.dim]);
    kernel.word("inner", y.ty.shape[op.dim + 1..].iter().product());
    kernel.word("taps", places.ty.shape[0]);
    kernel.words("places_strides", &places.layout.strides);
    kernel.words("weights_strides", &weights.layout.strides);
    let rank = walk(&mut kernel, "view", &[("x", &lines)]);
    define_rank(&mut kernel, "RANK", rank, "view_rank");
    kernel.status("status", outside(step, op.dim, emitter));
    emitter.launch(kernel);
}
