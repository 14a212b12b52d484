//! Views, and operations that move elements.

pub(in crate::ops) mod assign;
pub(in crate::ops) mod cast;
pub(in crate::ops) mod concat;
pub(in crate::ops) mod flip;
pub(in crate::ops) mod pad;
pub(in crate::ops) mod triangle;
pub(in crate::ops) mod update_slice;
pub(in crate::ops) mod views;
pub(in crate::ops) mod within;
