//! Reductions, scans and selections.

pub(crate) mod arg_reduce;
pub(crate) mod gather;
pub(crate) mod index_select;
pub(crate) mod kth_value;
pub(crate) mod reduce;
pub(crate) mod scan;
pub(crate) mod scatter;
pub(crate) mod top_k;
pub(crate) mod top_k_softmax;
pub(crate) mod var_mean;

pub use arg_reduce::ArgReduce;
pub use gather::Gather;
pub use index_select::IndexSelect;
pub use kth_value::KthValue;
pub use reduce::{Reduce, ReduceOp};
pub use scan::{Scan, ScanOp};
pub use scatter::{Scatter, ScatterMode};
pub use top_k::TopK;
pub use top_k_softmax::TopKSoftmax;
pub use var_mean::VarMean;
