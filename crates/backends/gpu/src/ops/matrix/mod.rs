//! Products of matrices, and layers made of them.

pub(in crate::ops) mod blocks;
pub(crate) mod expert_linear;
pub(crate) mod fused_linear;
pub(in crate::ops) mod linear;
pub(in crate::ops) mod matmul;
pub(in crate::ops) mod product;
pub(in crate::ops) mod quantized;
pub(in crate::ops) mod simd_tile;
pub(in crate::ops) mod tile;
