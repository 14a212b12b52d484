//! 2-D convolution.

use rustorch_ir::{Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts, Step};

use super::cuda;
use super::windows::{Windows, convolution};
use crate::emit::{Emit, Emitter};

pub(crate) const KERNEL: KernelEntry<Emit> = KernelEntry {
    kind: OpKind::Conv2d,
    accepts,
    layouts: Layouts::Any,
    launch: emit,
};

fn accepts(_: &Signature) -> bool {
    true
}

fn emit(step: &Step, emitter: &mut Emitter) {
    let Op::Conv2d(op) = &step.last().op else {
        return;
    };
    let weight = &step.inputs[1].ty.shape;
    let windows = Windows {
        kernel_size: [weight[2], weight[3]],
        stride: op.stride,
        padding: op.padding,
        dilation: op.dilation,
    };
    if cuda::conv2d::accepts(step, op.groups, emitter) {
        return cuda::conv2d::emit(step, &windows, emitter);
    }
    let text = include_str!("../../kernels/conv2d.c");
    emitter.launch(convolution("conv2d", text, step, &windows, op.groups));
}
