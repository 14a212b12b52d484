//! Views, and operations that move elements.

pub(crate) mod assign;
pub(crate) mod cast;
pub(crate) mod concat;
pub(crate) mod contiguous;
pub(crate) mod pad;
pub(crate) mod update_slice;
pub(crate) mod view;
