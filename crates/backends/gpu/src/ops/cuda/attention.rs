//! Attention of few tokens to a cache, with what comes in front of it.

use crate::emit::Emitter;
use crate::merge::CachedAttention;

/// Is it one that has a kernel?
pub(crate) fn accepts(_: &CachedAttention) -> bool {
    false
}

/// Appends the launch.
pub(crate) fn emit(_: &CachedAttention, _: &mut Emitter) {}
