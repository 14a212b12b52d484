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

pub use add_rms_norm::AddRmsNorm;
pub use batch_norm::BatchNorm;
pub use batch_norm_backward::BatchNormBackward;
pub use batch_norm_train::BatchNormTrain;
pub use cross_entropy::CrossEntropy;
pub use cross_entropy_backward::CrossEntropyBackward;
pub use cross_entropy_mean::CrossEntropyMean;
pub use fused_norm::FusedNorm;
pub use group_norm::GroupNorm;
pub use layer_norm::LayerNorm;
pub use norm_backward::NormBackward;
pub use rms_norm::RmsNorm;
pub use softmax::Softmax;
