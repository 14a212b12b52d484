//! The gradient of what maxima of 2-D windows were taken of.

use rustorch_ir::ops::MaxPool2dBackward;
use rustorch_ir::{Op, OpKind};
use rustorch_runtime::{KernelEntry, Layouts, Place, Step};

use super::windows::{Windows, kernel};
use crate::emit::{Emitter, GpuKernel};

pub(crate) const KERNEL: KernelEntry<GpuKernel> = KernelEntry {
    kind: OpKind::MaxPool2dBackward,
    accepts: |_| true,
    layouts: Layouts::Any,
    launch: GpuKernel::everywhere(emit),
};

fn emit(step: &Step, emitter: &mut Emitter) {
    let Op::MaxPool2dBackward(op) = &step.last().op else {
        return;
    };
    let operands = [&step.inputs[0], &step.inputs[1]];
    backward(op, operands, step.output(), false, emitter);
}

/// Appends the launch. The result is in memory as it is, or with its channels last.
pub(super) fn backward(
    op: &MaxPool2dBackward,
    [index, ct]: [&Place; 2],
    result: &Place,
    is_last: bool,
    emitter: &mut Emitter,
) {
    let windows = Windows {
        kernel_size: op.kernel,
        stride: op.stride,
        padding: op.padding,
        dilation: op.dilation,
    };
    let text = include_str!("../../kernels/max_pool2d_backward.c");
    let count = result.ty.shape.elements();
    let mut kernel = kernel("max_pool2d_backward", text, [ct, result], &windows, count);
    kernel.define("CHANNELS_LAST", u8::from(is_last));
    kernel.read("index", index);
    kernel.words("index_strides", &index.layout.strides);
    emitter.launch(kernel);
}
