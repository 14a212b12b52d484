//! Groups of channels with mean 0 and variance 1.

use rustorch_ir::{Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts, Step};

use super::layer_norm::{Affine, normalize};
use crate::emit::{Emitter, GpuKernel};

pub(crate) const KERNEL: KernelEntry<GpuKernel> = KernelEntry {
    kind: OpKind::GroupNorm,
    accepts,
    layouts: Layouts::Contiguous,
    launch: GpuKernel::everywhere(emit),
};

fn accepts(_: &Signature) -> bool {
    true
}

fn emit(step: &Step, emitter: &mut Emitter) {
    let Op::GroupNorm(op) = &step.last().op else {
        return;
    };
    let shape = &step.output().ty.shape;
    let (channels, pixels) = (shape[1] / op.groups, shape[2..].iter().product::<usize>());
    let lines = [shape[0] * op.groups, channels * pixels];
    let affine = Affine::OfChannels {
        groups: op.groups,
        channels,
        pixels,
    };
    emitter.launch(normalize(
        "group_norm",
        step,
        lines,
        op.eps,
        affine,
        emitter.limits,
    ));
}
