//! The maximum or average of 2-D windows, and where maxima are.

use rustorch_ir::ops::{Pool2d, PoolKind};
use rustorch_ir::{Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts, Place, Step};

use super::windows::{Windows, channels_together, kernel};
use crate::emit::{Emitter, GpuKernel};

pub(crate) const KERNEL: KernelEntry<GpuKernel> = KernelEntry {
    kind: OpKind::Pool2d,
    accepts,
    layouts: Layouts::Any,
    launch: GpuKernel::everywhere(emit),
};

fn accepts(_: &Signature) -> bool {
    true
}

fn emit(step: &Step, emitter: &mut Emitter) {
    let Op::Pool2d(op) = &step.last().op else {
        return;
    };
    let results: Vec<&Place> = step.outputs.iter().collect();
    pool(op, &step.inputs[0], &results, false, emitter);
}

/// Appends the launch that pools x. Results are in memory as they are, or with their channels last.
pub(in crate::ops) fn pool(
    op: &Pool2d,
    x: &Place,
    results: &[&Place],
    is_last: bool,
    emitter: &mut Emitter,
) {
    let windows = Windows {
        kernel_size: op.kernel,
        stride: op.stride,
        padding: op.padding,
        dilation: op.dilation,
    };
    let text = concat!(
        include_str!("../../../kernels/vectors.h"),
        include_str!("../../../kernels/numbers.h"),
        include_str!("../../../kernels/windows.h"),
        include_str!("../../../kernels/pool2d.c")
    );
    let images: Vec<&Place> = [x].into_iter().chain(results.iter().copied()).collect();
    let vector = if is_last {
        channels_together(&images)
    } else {
        1
    };
    let count = results[0].ty.shape.elements() / vector;
    let mut kernel = kernel("pool2d", text, [x, results[0]], &windows, count);
    let (start, combine, finish) = match op.kind {
        PoolKind::Max => ("-INFINITY", "MAX_OR_NAN(a, b)", "(a)"),
        PoolKind::Average => (
            "0",
            "((a) + (b))",
            "((a) / (ACCUMULATOR)(p.kernel_size[0] * p.kernel_size[1]))",
        ),
    };
    kernel.define("START", start);
    kernel.define("COMBINE(a, b)", combine);
    kernel.define("FINISH(a)", finish);
    kernel.define("CHANNELS_LAST", u8::from(is_last));
    kernel.define("VECTOR", vector);
    kernel.define("HAS_INDICES", u8::from(op.indices.is_some()));
    if op.indices.is_some() {
        kernel.define_dtype("I", results[1].ty.dtype);
        kernel.write("indices", results[1]);
    }
    emitter.launch(kernel);
}
