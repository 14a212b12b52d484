//! Attention of a token of each of several sequences to the sequence's cache and to itself.

use rustorch_ir::ops::RaggedAttention;
use rustorch_ir::{DType, Op, OpKind, Signature, TensorType};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::emit::GpuKernel;
use crate::ops::cuda;

pub(crate) const KERNEL: KernelEntry<GpuKernel> = KernelEntry {
    kind: OpKind::RaggedAttention,
    accepts,
    layouts: Layouts::DenseRows,
    launch: GpuKernel {
        emit: cuda::ragged_attention::emit,
        suits: cuda::has_warpgroups,
    },
};

/// The most sequences of a launch: the addresses of their caches are parameters, of which there is room for 4096 bytes.
const SEQUENCES: usize = 96;

fn accepts(s: &Signature) -> bool {
    let Op::RaggedAttention(op) = s.op else {
        return false;
    };
    let (tokens, caches) = s.inputs.split_at(RaggedAttention::CACHES);
    let ([q, k, v, _], [keys, values, ..]) = (tokens, caches) else {
        return false;
    };
    let is_single = |x: &&TensorType| x.dtype == DType::F32;
    let token = TensorType::new(q.shape.clone().with_dim(1, 1), q.dtype);
    cuda::attention::accepts(&op.attention, [&token, keys, values])
        && [q, k, v].iter().all(|x| is_single(x))
        && op.attention.causal
        && caches.len() <= 2 * SEQUENCES
        && caches.chunks_exact(2).all(|each| each == [*keys, *values])
}
