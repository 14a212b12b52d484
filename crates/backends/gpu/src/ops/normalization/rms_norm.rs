//! Lines divided by the root of their mean square.

use rustorch_ir::{Layout, Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts, Step};

use crate::emit::{Emitter, GpuKernel};
use crate::kernel::accumulator;
use crate::ops::lines::{exact, held_vector, line_kernel};

pub(crate) const KERNEL: KernelEntry<GpuKernel> = KernelEntry {
    kind: OpKind::RmsNorm,
    accepts,
    layouts: Layouts::Any,
    launch: GpuKernel::everywhere(emit),
};

fn accepts(_: &Signature) -> bool {
    true
}

fn emit(step: &Step, emitter: &mut Emitter) {
    let Op::RmsNorm(op) = &step.last().op else {
        return;
    };
    let text = concat!(
        include_str!("../../../kernels/lines.h"),
        include_str!("../../../kernels/vectors.h"),
        include_str!("../../../kernels/held.h"),
        include_str!("../../../kernels/rms_norm.c")
    );
    let y = Layout::contiguous(&step.output().ty.shape);
    let (views, last) = ([&step.inputs[0].layout, &y], y.rank() - 1);
    let mut kernel = line_kernel("rms_norm", text, step, views, last, emitter.limits);
    let vector = held_vector(step, views, last, emitter.limits);
    kernel.define("VECTOR", vector);
    let sums = exact(
        step.output().ty.dtype,
        step.output().ty.shape[last],
        emitter.limits,
    );
    kernel.define("ACCUMULATOR", accumulator(sums));
    kernel.real("EPS", step.output().ty.dtype, op.eps.0);
    kernel.define("HAS_WEIGHT", step.inputs.len() - 1);
    if let Some(weight) = step.inputs.get(1) {
        kernel.read("w", weight);
        kernel.word("w_step", weight.layout.strides[0]);
    }
    emitter.launch(kernel);
}
