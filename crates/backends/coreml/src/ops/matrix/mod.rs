//! Products of matrices, and layers made of them.

pub(in crate::ops) mod linear;
pub(in crate::ops) mod matmul;
