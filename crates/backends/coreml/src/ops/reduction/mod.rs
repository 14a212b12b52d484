//! Reductions, scans and selections.

pub(in crate::ops) mod gather;
pub(in crate::ops) mod index_select;
pub(in crate::ops) mod reduce;
