//! Convolutions, pools and resampling of images.

pub(in crate::ops) mod channels_last;
pub(crate) mod conv2d;
pub(in crate::ops) mod conv2d_weight;
pub(in crate::ops) mod conv_transpose2d;
pub(in crate::ops) mod max_pool2d_backward;
pub(in crate::ops) mod pool2d;
pub(in crate::ops) mod resample;
pub(in crate::ops) mod windows;
