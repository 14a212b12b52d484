//! Operations on images with their channels last: convolutions are the kernels of CUDA's tensor cores, which take
//! them as views.

use rustorch_ir::ops::ChannelsLast;
use rustorch_ir::{DType, Layout, Op, OpKind, Signature, TensorType};
use rustorch_runtime::{KernelEntry, Layouts, Place, Step};

use super::{max_pool2d_backward, pool2d};
use crate::emit::{Emitter, GpuKernel};
use crate::ops::{batch_norm_train, cuda};

const fn entry(
    accepts: fn(&Signature) -> bool,
    layouts: Layouts,
    launch: GpuKernel,
) -> KernelEntry<GpuKernel> {
    KernelEntry {
        kind: OpKind::ChannelsLast,
        accepts,
        layouts,
        launch,
    }
}

pub(crate) const KERNELS: [KernelEntry<GpuKernel>; 3] = [
    entry(
        is_convolution,
        Layouts::Any,
        GpuKernel {
            emit: convolution,
            suits: cuda::has_warpgroups,
        },
    ),
    entry(is_pool, Layouts::Any, GpuKernel::everywhere(pool)),
    entry(is_norm, Layouts::Contiguous, GpuKernel::everywhere(norm)),
];

fn inner(op: &Op) -> Option<&Op> {
    match op {
        Op::ChannelsLast(op) => Some(&op.op),
        _ => None,
    }
}

/// A convolution of halves that tensor cores can make.
fn is_convolution(s: &Signature) -> bool {
    let groups = match inner(s.op) {
        Some(Op::Conv2d(op)) => op.groups,
        Some(Op::ConvTranspose2d(op)) => op.groups,
        Some(Op::Conv2dWeight(op)) => op.conv.groups,
        _ => return false,
    };
    let is_half = matches!(s.output().dtype, DType::F16 | DType::BF16);
    let has_elements = s.types().all(|ty| ty.shape.elements() > 0);
    groups == 1 && is_half && has_elements
}

fn is_pool(s: &Signature) -> bool {
    matches!(inner(s.op), Some(Op::Pool2d(_) | Op::MaxPool2dBackward(_)))
}

fn is_norm(s: &Signature) -> bool {
    let is_norm = matches!(
        inner(s.op),
        Some(Op::BatchNormTrain(_) | Op::BatchNormBackward(_))
    );
    is_norm && s.inputs[0].rank() == 4 && batch_norm_train::accepts(s)
}

/// An operand or result as the operation has it, its channels second.
fn seen(place: &Place) -> Place {
    let layout: Layout = place.layout.permute(&ChannelsLast::BACK);
    Place {
        slot: place.slot,
        ty: TensorType::new(layout.shape.clone(), place.ty.dtype),
        layout,
    }
}

fn convolution(step: &Step, emitter: &mut Emitter) {
    let Some(op) = inner(&step.last().op) else {
        return;
    };
    let inputs: Vec<Place> = (step.inputs.iter().enumerate())
        .map(
            |(i, place)| match ChannelsLast::is_image(op, i, &place.ty) {
                true => seen(place),
                false => place.clone(),
            },
        )
        .collect();
    let operands: Vec<&Place> = inputs.iter().collect();
    match op {
        Op::Conv2d(op) => cuda::conv2d::convolve(op, &operands, &seen(step.output()), emitter),
        Op::ConvTranspose2d(op) => {
            cuda::conv_transpose2d::spread(op, &operands, &seen(step.output()), emitter);
        }
        Op::Conv2dWeight(op) => {
            cuda::conv2d_weight::sum(op, [operands[0], operands[1]], step.output(), emitter);
        }
        _ => {}
    }
}

fn pool(step: &Step, emitter: &mut Emitter) {
    let inputs: Vec<Place> = step.inputs.iter().map(seen).collect();
    let results: Vec<Place> = step.outputs.iter().map(seen).collect();
    match inner(&step.last().op) {
        Some(Op::Pool2d(op)) => {
            let results: Vec<&Place> = results.iter().collect();
            pool2d::pool(op, &inputs[0], &results, true, emitter);
        }
        Some(Op::MaxPool2dBackward(op)) => {
            let operands = [&inputs[0], &inputs[1]];
            max_pool2d_backward::backward(op, operands, &results[0], true, emitter);
        }
        _ => {}
    }
}

fn norm(step: &Step, emitter: &mut Emitter) {
    if let Some(op) = inner(&step.last().op) {
        batch_norm_train::launch(op, step, true, emitter);
    }
}
