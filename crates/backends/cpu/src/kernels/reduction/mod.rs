//! Reductions, scans and selections.

pub(in crate::kernels) mod arg_reduce;
pub(in crate::kernels) mod gather;
pub(in crate::kernels) mod index_select;
pub(in crate::kernels) mod kth_value;
pub(in crate::kernels) mod reduce;
pub(in crate::kernels) mod scan;
pub(in crate::kernels) mod scatter;
pub(in crate::kernels) mod top_k;
pub(in crate::kernels) mod var_mean;
