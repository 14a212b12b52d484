//! Transposed 2-D convolution.

use rustorch_ir::{Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts, Step};

use super::windows::{Windows, convolution};
use crate::emit::{Emitter, GpuKernel};
use crate::ops::cuda;

const fn entry(accepts: fn(&Signature) -> bool, launch: GpuKernel) -> KernelEntry<GpuKernel> {
    KernelEntry {
        kind: OpKind::ConvTranspose2d,
        accepts,
        layouts: Layouts::Any,
        launch,
    }
}

pub(crate) const KERNELS: [KernelEntry<GpuKernel>; 2] = [
    entry(
        cuda::conv_transpose2d::accepts,
        GpuKernel {
            emit: cuda::conv_transpose2d::emit,
            suits: cuda::has_warpgroups,
        },
    ),
    entry(|_| true, GpuKernel::everywhere(emit)),
];

fn emit(step: &Step, emitter: &mut Emitter) {
    let Op::ConvTranspose2d(op) = &step.last().op else {
        return;
    };
    let weight = &step.inputs[1].ty.shape;
    let windows = Windows {
        kernel_size: [weight[2], weight[3]],
        stride: op.stride,
        padding: op.padding,
        dilation: op.dilation,
    };
    let text = include_str!("../../../kernels/conv_transpose2d.c");
    emitter.launch(convolution(
        "conv_transpose2d",
        text,
        step,
        &windows,
        op.groups,
        1,
    ));
}
