//! The gradient of the operand of maxima of 2-D windows.

use rustorch_ir::ops::MaxPool2dBackward;
use rustorch_ir::{Op, OpKind};
use rustorch_runtime::{KernelEntry, Layouts, Place, Step};

use super::windows::{Windows, channels_together, kernel};
use crate::emit::{Emitter, GpuKernel};

pub(crate) const KERNEL: KernelEntry<GpuKernel> = KernelEntry {
    kind: OpKind::MaxPool2dBackward,
    accepts: |_| true,
    layouts: Layouts::Any,
    launch: GpuKernel::everywhere(emit),
};

/// Elements of a row that a work-item finds one after the other, which saves it divisions.
const EACH: usize = 4;

fn emit(step: &Step, emitter: &mut Emitter) {
    let Op::MaxPool2dBackward(op) = &step.last().op else {
        return;
    };
    let operands = [&step.inputs[0], &step.inputs[1]];
    backward(op, operands, step.output(), false, emitter);
}

/// Appends the launch. The result is in memory as it is, or with its channels last.
pub(in crate::ops) fn backward(
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
    let text = concat!(
        include_str!("../../../kernels/vectors.h"),
        include_str!("../../../kernels/numbers.h"),
        include_str!("../../../kernels/windows.h"),
        include_str!("../../../kernels/max_pool2d_backward.c")
    );
    let [vector, each] = match is_last {
        true => [channels_together(&[ct, index, result]), EACH],
        false => [1, 1],
    };
    let shape = &result.ty.shape;
    let blocks = shape[3].div_ceil(each);
    let count = shape[0] * shape[1] / vector * shape[2] * blocks;
    let mut kernel = kernel("max_pool2d_backward", text, [ct, result], &windows, count);
    kernel.define("CHANNELS_LAST", u8::from(is_last));
    kernel.define("VECTOR", vector);
    kernel.define("EACH", each);
    kernel.define_dtype("I", index.ty.dtype);
    kernel.word("blocks", blocks);
    kernel.read("index", index);
    kernel.words("index_strides", &index.layout.strides);
    emitter.launch(kernel);
}
