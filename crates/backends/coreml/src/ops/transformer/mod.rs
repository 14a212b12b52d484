//! Parts of transformers.

pub(in crate::ops) mod attention;
pub(in crate::ops) mod embedding;
pub(in crate::ops) mod rope;
