//! Softmax, norms and cross entropies.

pub(in crate::ops) mod batch_norm;
pub(in crate::ops) mod layer_norm;
pub(in crate::ops) mod rms_norm;
pub(in crate::ops) mod softmax;
