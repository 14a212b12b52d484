//! The gradients of attention, without scores in memory.

use rustorch_ir::{Op, OpKind};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::emit::GpuKernel;
use crate::ops::cuda;

pub(crate) const KERNEL: KernelEntry<GpuKernel> = KernelEntry {
    kind: OpKind::AttentionBackward,
    accepts: |s| match (s.op, s.inputs) {
        (Op::AttentionBackward(op), &[q, k, v, ..]) => {
            cuda::attention::accepts_backward(&op.attention, [q, k, v])
        }
        _ => false,
    },
    layouts: Layouts::AlignedRows,
    launch: GpuKernel {
        emit: cuda::attention::emit_backward,
        suits: cuda::has_warpgroups,
    },
};
