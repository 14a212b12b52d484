//! Attention of a token to a cache and to itself: the token is rotated and written to the cache on
//! the way.

use rustorch_ir::{DType, Op, OpKind, Signature, TensorType};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::emit::GpuKernel;
use crate::ops::cuda;

pub(crate) const KERNEL: KernelEntry<GpuKernel> = KernelEntry {
    kind: OpKind::CachedAttention,
    accepts,
    layouts: Layouts::DenseRows,
    launch: GpuKernel {
        emit: cuda::attention::emit_cached,
        suits: cuda::has_warpgroups,
    },
};

fn accepts(s: &Signature) -> bool {
    let (Op::CachedAttention(op), &[q, k, v, keys, values, ..]) = (s.op, s.inputs) else {
        return false;
    };
    let is_token = |x: &TensorType| x.dtype == DType::F32 && x.rank() == 3 && x.shape[1] == 1;
    cuda::attention::accepts(&op.attention, [q, keys, values])
        && [q, k, v].into_iter().all(is_token)
        && op.attention.causal
        && op.attention.past
        && op.rope.dims.is_multiple_of(2)
}
