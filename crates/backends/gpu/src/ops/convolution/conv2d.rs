//! 2-D convolution.

use rustorch_ir::ops::Conv2d;
use rustorch_ir::{Op, OpKind, Shape, Signature};
use rustorch_runtime::{KernelEntry, Layouts, Step};

use super::windows::{Windows, convolution};
use crate::emit::{Emitter, GpuKernel};
use crate::ops::cuda;

const fn entry(accepts: fn(&Signature) -> bool, launch: GpuKernel) -> KernelEntry<GpuKernel> {
    KernelEntry {
        kind: OpKind::Conv2d,
        accepts,
        layouts: Layouts::Any,
        launch,
    }
}

pub(crate) const KERNELS: [KernelEntry<GpuKernel>; 2] = [
    entry(
        cuda::conv2d::accepts,
        GpuKernel {
            emit: cuda::conv2d::emit,
            suits: cuda::has_warpgroups,
        },
    ),
    entry(|_| true, GpuKernel::everywhere(emit)),
];

/// Rows that a work-item computes of a channel: weights are read once for all of them.
const PLACES: usize = 4;

/// The windows of a convolution with weights of a shape.
pub(in crate::ops) fn windows(op: &Conv2d, weight: &Shape) -> Windows {
    Windows {
        kernel_size: [weight[2], weight[3]],
        stride: op.stride,
        padding: op.padding,
        dilation: op.dilation,
    }
}

fn emit(step: &Step, emitter: &mut Emitter) {
    let Op::Conv2d(op) = &step.last().op else {
        return;
    };
    let windows = windows(op, &step.inputs[1].ty.shape);
    let text = include_str!("../../../kernels/conv2d.c");
    let kernel = convolution("conv2d", text, step, &windows, op.groups, PLACES);
    emitter.launch(kernel);
}
