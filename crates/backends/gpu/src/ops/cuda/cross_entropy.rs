//! The gradient of cross entropy with each row in a group's local memory.

use rustorch_ir::DType;

use super::AMPERE;
use crate::dialect::Dialect;
use crate::emit::Emitter;

/// The kernel's text.
pub(in crate::ops) const BACKWARD: &str = concat!(
    include_str!("../../../kernels/vectors.h"),
    include_str!("../../../kernels/cuda/halves.h"),
    include_str!("../../../kernels/cuda/cross_entropy_backward.cu")
);

/// Work-items of a group, which has a row.
pub(in crate::ops) const GROUP: usize = 512;

/// Bytes of local memory that the text declares.
const DECLARED: usize = 1 << 10;

/// Returns whether there is room for rows of this number of bytes, read in vectors of this number of elements. Returns
/// whether they are worth a group.
pub(in crate::ops) fn accepts(
    dtype: DType,
    vector: usize,
    bytes: usize,
    emitter: &Emitter,
) -> bool {
    emitter.dialect == Dialect::Cuda
        && emitter.limits.cuda_capability >= AMPERE
        && matches!(dtype, DType::F32 | DType::F16 | DType::BF16)
        && vector > 1
        && (GROUP * 16..=emitter.limits.local_bytes.saturating_sub(DECLARED)).contains(&bytes)
}
