//! Softmax, norms and cross entropies.

pub(crate) mod add_rms_norm;
pub(crate) mod batch_norm;
pub(crate) mod batch_norm_backward;
pub(crate) mod batch_norm_train;
pub(crate) mod cross_entropy;
pub(crate) mod cross_entropy_backward;
pub(crate) mod cross_entropy_mean;
pub(crate) mod fused_norm;
pub(crate) mod group_norm;
pub(crate) mod layer_norm;
pub(crate) mod norm_backward;
pub(crate) mod rms_norm;
pub(crate) mod softmax;

use super::*;
