//! Parts of transformers.

pub(in crate::kernels) mod attention;
pub(in crate::kernels) mod embedding;
pub(in crate::kernels) mod rope;
