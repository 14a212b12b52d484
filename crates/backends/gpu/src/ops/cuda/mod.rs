//! Kernels of CUDA's own, for rows of the table that suit its devices only.

pub(crate) mod attention;
pub(crate) mod conv2d;
pub(crate) mod conv2d_weight;
pub(crate) mod conv_transpose2d;
pub(crate) mod cross_entropy;
pub(crate) mod matmul;
pub(crate) mod matvec;
pub(crate) mod matvec_experts;
pub(crate) mod norm_backward;
pub(crate) mod top_k;

use rustorch_ir::Signature;

use crate::emit::Device;

/// Ampere's compute capability: copies to local memory in the background, and arithmetic of bf16, came with it.
const AMPERE: u32 = 80;

/// Hopper's compute capability: the copy engine, clusters and dependent launches came with it and
/// stayed; products of warpgroups are its own.
const HOPPER: u32 = 90;

/// Has the device the tensor cores of Hopper, which kernels are written for?
pub(crate) fn has_warpgroups(device: &Device, _: &Signature) -> bool {
    device.limits.cuda_capability == HOPPER
}
