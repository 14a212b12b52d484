//! Convolutions, pools and resampling of images.

pub(in crate::kernels) mod conv2d;
pub(in crate::kernels) mod conv2d_weight;
pub(in crate::kernels) mod conv_transpose2d;
pub(in crate::kernels) mod pool2d;
pub(in crate::kernels) mod resample;
