//! Softmax, norms and cross entropies.

pub(in crate::kernels) mod add_rms_norm;
pub(in crate::kernels) mod cross_entropy;
pub(in crate::kernels) mod cross_entropy_backward;
pub(in crate::kernels) mod group_norm;
pub(in crate::kernels) mod layer_norm;
pub(in crate::kernels) mod norm_backward;
pub(in crate::kernels) mod rms_norm;
pub(in crate::kernels) mod softmax;
