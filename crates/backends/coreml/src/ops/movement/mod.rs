//! Views, and operations that move elements.

pub(in crate::ops) mod cast;
pub(in crate::ops) mod concat;
pub(in crate::ops) mod contiguous;
pub(in crate::ops) mod expand;
pub(in crate::ops) mod pad;
pub(in crate::ops) mod permute;
pub(in crate::ops) mod reshape;
pub(in crate::ops) mod slice;
pub(in crate::ops) mod update_slice;
