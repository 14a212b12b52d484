//! Sums, and their lines divided by the root of their mean square.

use rustorch_ir::{Layout, Op, OpKind};
use rustorch_runtime::{KernelEntry, Layouts, Step};

use crate::emit::{Emitter, GpuKernel};
use crate::kernel::accumulator;
use crate::ops::functions::rounded;
use crate::ops::lines::{exact, line_kernel};

pub(crate) const KERNEL: KernelEntry<GpuKernel> = KernelEntry {
    kind: OpKind::AddRmsNorm,
    accepts: |_| true,
    layouts: Layouts::Contiguous,
    launch: GpuKernel::everywhere(emit),
};

fn emit(step: &Step, emitter: &mut Emitter) {
    let Op::AddRmsNorm(op) = &step.last().op else {
        return;
    };
    let text = concat!(
        include_str!("../../../kernels/lines.h"),
        include_str!("../../../kernels/add_rms_norm.c")
    );
    let sum = step.output();
    let whole = Layout::contiguous(&sum.ty.shape);
    let (views, last) = ([&whole, &whole], whole.rank() - 1);
    let mut kernel = line_kernel("add_rms_norm", text, step, views, last, emitter.limits);
    let dtype = sum.ty.dtype;
    let sums = exact(dtype, sum.ty.shape[last], emitter.limits);
    kernel.define("ACCUMULATOR", accumulator(sums));
    kernel.define("ROUNDED(x)", rounded(dtype, "(x)".to_owned()));
    kernel.real("EPS", dtype, op.norm.eps.0);
    kernel.read("other", &step.inputs[1]);
    kernel.write("normed", &step.outputs[1]);
    let weight = step.inputs.get(2);
    kernel.define("HAS_WEIGHT", u8::from(weight.is_some()));
    if let Some(weight) = weight {
        kernel.read("w", weight);
    }
    emitter.launch(kernel);
}
