//! Views, and operations that move elements.

pub(in crate::kernels) mod assign;
pub(in crate::kernels) mod cast;
pub(in crate::kernels) mod concat;
pub(in crate::kernels) mod contiguous;
pub(in crate::kernels) mod flip;
pub(in crate::kernels) mod pad;
pub(in crate::kernels) mod triangle;
pub(in crate::kernels) mod update_slice;
pub(in crate::kernels) mod within;
