//! Gradients of convolutions' weights.

use rustorch_ir::OpKind;
use rustorch_runtime::{KernelEntry, Layouts};

use super::cuda;
use crate::emit::GpuKernel;

pub(crate) const KERNEL: KernelEntry<GpuKernel> = KernelEntry {
    kind: OpKind::Conv2dWeight,
    accepts: cuda::conv2d_weight::accepts,
    layouts: Layouts::Any,
    launch: GpuKernel {
        emit: cuda::conv2d_weight::emit,
        suits: cuda::has_warpgroups,
    },
};
