//! Checks that elements are in a range.

use rustorch_ir::{Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts, Step};

use super::views::{define_rank, for_each, walk};
use crate::emit::{Emitter, GpuKernel};
use crate::kernel::accumulator;

pub(crate) const KERNEL: KernelEntry<GpuKernel> = KernelEntry {
    kind: OpKind::Within,
    accepts,
    layouts: Layouts::Any,
    launch: GpuKernel::everywhere(emit),
};

fn accepts(_: &Signature) -> bool {
    true
}

fn emit(step: &Step, emitter: &mut Emitter) {
    let Op::Within(op) = &step.last().op else {
        return;
    };
    let (x, y) = (&step.inputs[0], step.output());
    let count = y.ty.shape.elements();
    let mut kernel = for_each("within", include_str!("../../../kernels/within.c"), count);
    kernel.define_dtype("X", x.ty.dtype);
    kernel.define("ACCUMULATOR", accumulator(x.ty.dtype));
    kernel.define("ALLOWS_NAN", u8::from(op.nan));
    kernel.real("LOW", x.ty.dtype, op.low.0);
    kernel.real("HIGH", x.ty.dtype, op.high.0);
    kernel.read("x", x);
    kernel.write("y", y);
    let message = format!("an element is not {}", op.range());
    kernel.status("status", emitter.mistake(step, 0, message));
    let rank = walk(&mut kernel, "view", &[("x", &x.layout)]);
    define_rank(&mut kernel, "RANK", rank, "view_rank");
    emitter.launch(kernel);
}
