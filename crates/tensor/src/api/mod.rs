//! Methods and functions on tensors.

pub mod amp;
pub(crate) mod checkpoint;
pub(crate) mod creation;
pub(crate) mod custom;
pub(crate) mod display;
pub(crate) mod fetch;
pub(crate) mod hints;
pub(crate) mod in_place;
pub(crate) mod macros;
pub(crate) mod math;
pub mod nn;
pub(crate) mod ops_traits;
#[cfg(feature = "profile")]
pub mod profiler;
pub(crate) mod promote;
pub(crate) mod random;
pub mod replay;
pub(crate) mod shape;
pub(crate) mod updates;
pub mod vision;
