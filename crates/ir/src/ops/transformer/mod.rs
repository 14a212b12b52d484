//! Parts of transformers.

pub(crate) mod attention;
pub(crate) mod attention_backward;
pub(crate) mod cached_attention;
pub(crate) mod embedding;
pub(crate) mod rope;

pub use attention::Attention;
pub use attention_backward::AttentionBackward;
pub use cached_attention::CachedAttention;
pub use embedding::Embedding;
pub use rope::{Rope, RopeLayout, RopeScaling};
