//! Views, and operations that move elements.

pub(crate) mod as_strided;
pub(crate) mod assign;
pub(crate) mod cast;
pub(crate) mod concat;
pub(crate) mod contiguous;
pub(crate) mod expand;
pub(crate) mod flip;
pub(crate) mod offload;
pub(crate) mod pad;
pub(crate) mod permute;
pub(crate) mod reload;
pub(crate) mod reshape;
pub(crate) mod slice;
pub(crate) mod triangle;
pub(crate) mod update_slice;
pub(crate) mod within;

use super::*;
