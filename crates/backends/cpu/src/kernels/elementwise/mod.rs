//! Functions of elements.

pub(in crate::kernels) mod activation;
pub(in crate::kernels) mod binary;
pub(in crate::kernels) mod compare;
pub(in crate::kernels) mod select;
pub(in crate::kernels) mod ternary;
pub(in crate::kernels) mod unary;
