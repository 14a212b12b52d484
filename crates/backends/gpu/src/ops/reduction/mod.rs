//! Reductions, scans and selections.

pub(in crate::ops) mod arg_reduce;
pub(in crate::ops) mod gather;
pub(in crate::ops) mod index_select;
pub(in crate::ops) mod lines;
pub(crate) mod reduce;
pub(in crate::ops) mod scan;
pub(in crate::ops) mod scatter;
pub(in crate::ops) mod top_k;
pub(in crate::ops) mod var_mean;
