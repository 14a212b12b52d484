//! Products of matrices, and layers made of them.

pub(in crate::kernels) mod expert_linear;
pub(in crate::kernels) mod fused_linear;
pub(in crate::kernels) mod linear;
pub(in crate::kernels) mod linear_recurrence;
pub(in crate::kernels) mod lstm;
pub(in crate::kernels) mod matmul;
