//! Parts of transformers.

pub(crate) mod attention;
pub(in crate::ops) mod attention_backward;
pub(in crate::ops) mod cached_attention;
pub(in crate::ops) mod embedding;
pub(crate) mod rope;
