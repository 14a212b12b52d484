//! Convolutions, pools and resampling of images.

pub(in crate::ops) mod conv2d;
pub(in crate::ops) mod conv_transpose2d;
pub(in crate::ops) mod pool2d;
