//! Softmax, norms and cross entropies.

pub(in crate::ops) mod add_rms_norm;
pub(in crate::ops) mod batch_norm;
pub(in crate::ops) mod batch_norm_train;
pub(in crate::ops) mod cross_entropy;
pub(in crate::ops) mod fused_norm;
pub(in crate::ops) mod group_norm;
pub(in crate::ops) mod layer_norm;
pub(in crate::ops) mod norm_backward;
pub(in crate::ops) mod rms_norm;
pub(in crate::ops) mod softmax;
