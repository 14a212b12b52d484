//! Gradients of convolutions' weights.

use rustorch_ir::OpKind;
use rustorch_runtime::{KernelEntry, Layouts};

use crate::emit::GpuKernel;
use crate::ops::cuda;

pub(crate) const KERNEL: KernelEntry<GpuKernel> = KernelEntry {
    kind: OpKind::Conv2dWeight,
    accepts: cuda::conv2d_weight::accepts,
    layouts: Layouts::Any,
    launch: GpuKernel {
        emit: cuda::conv2d_weight::emit,
        suits: cuda::has_warpgroups,
    },
};
