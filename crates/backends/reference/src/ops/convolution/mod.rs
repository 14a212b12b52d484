//! Convolutions, pools and resampling of images.

pub(crate) mod conv2d;
pub(crate) mod conv_transpose2d;
pub(crate) mod pool2d;
