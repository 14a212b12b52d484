//! Other names and ways to choose devices: hybrids, operations that prefer a GPU, tensors of `f32`, candle's names.

#[cfg(feature = "hybrid-f32")]
pub(crate) mod f32;
pub(crate) mod gpu;
pub(crate) mod hybrid;
pub(crate) mod names;
