//! `x · wᵀ + bias`.

use rustorch_ir::{OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts, Step};

use super::product::{Product, is_dense, is_of_library};
use super::{fused_linear, quantized};
use crate::emit::GpuKernel;
use crate::ops::cuda;

const fn entry(accepts: fn(&Signature) -> bool, launch: GpuKernel) -> KernelEntry<GpuKernel> {
    KernelEntry {
        kind: OpKind::Linear,
        accepts,
        layouts: Layouts::Contiguous,
        launch,
    }
}

/// By the driver's library, which reads operands of one dtype as they are, or by a kernel of ours.
const ON_TENSOR_CORES: GpuKernel = GpuKernel {
    emit: |step, emitter| product(step).emit_on_tensor_cores(emitter),
    suits: cuda::has_warpgroups,
};

pub(crate) const KERNELS: [KernelEntry<GpuKernel>; 6] = [
    fused_linear::few(OpKind::Linear),
    entry(|s| is_of_library(s.inputs[0], s.inputs[1]), ON_TENSOR_CORES),
    fused_linear::many(OpKind::Linear),
    entry(|s| is_dense(s.inputs[0], s.inputs[1]), ON_TENSOR_CORES),
    entry(
        |s| s.inputs[1].dtype.is_block(),
        GpuKernel::everywhere(quantized::emit),
    ),
    entry(
        |_| true,
        GpuKernel::everywhere(|step, emitter| product(step).emit(emitter)),
    ),
];

fn product(step: &Step) -> Product<'_> {
    let (x, w) = (&step.inputs[0], &step.inputs[1]);
    Product::of_rows(x, w, step.inputs.get(2), step.output())
}
