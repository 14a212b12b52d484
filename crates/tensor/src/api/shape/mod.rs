//! Other shapes, parts, and the same elements elsewhere.

pub(crate) mod diagonals;
pub(crate) mod index;
pub(crate) mod join;
pub(crate) mod layouts;
pub mod masked;
pub(crate) mod padding;
pub(crate) mod parts;
pub(crate) mod patches;
pub(crate) mod ranges;
pub(crate) mod rearrange;
pub(crate) mod rows;
pub(crate) mod views;
pub mod windows;
