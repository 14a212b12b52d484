//! Convolutions, pools and resampling of images.

pub(in crate::ops) mod channels_last;
pub(crate) mod conv2d;
pub(in crate::ops) mod conv2d_weight;
pub(crate) mod conv_transpose2d;
pub(in crate::ops) mod max_pool2d_backward;
pub(crate) mod pool2d;
pub(crate) mod resample;

pub use channels_last::ChannelsLast;
pub use conv_transpose2d::ConvTranspose2d;
pub use conv2d::Conv2d;
pub use conv2d_weight::Conv2dWeight;
pub use max_pool2d_backward::MaxPool2dBackward;
pub use pool2d::{Pool2d, PoolIndices, PoolKind};
pub use resample::Resample;
