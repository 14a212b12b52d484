//! Parts of transformers.

pub(crate) mod attention;
pub(crate) mod attention_backward;
pub(crate) mod cached_attention;
pub(crate) mod embedding;
pub(crate) mod rope;

use super::*;
