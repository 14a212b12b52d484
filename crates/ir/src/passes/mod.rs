//! Passes: graphs become graphs that compute the same.

pub mod channels_last;
pub mod chunks;
pub mod conversion;
pub mod fusion;
pub mod recomputation;
pub mod repeats;
pub mod rewriting;
