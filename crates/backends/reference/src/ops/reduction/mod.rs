//! Reductions, scans and selections.

pub(crate) mod arg_reduce;
pub(crate) mod gather;
pub(crate) mod index_select;
pub(crate) mod reduce;
pub(crate) mod scan;
pub(crate) mod scatter;
pub(crate) mod top_k;
