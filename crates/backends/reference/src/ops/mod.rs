//! One file for each operation, of the operation's name: `evaluate` is its definition.

pub(crate) mod arange;
pub(crate) mod arg_reduce;
pub(crate) mod assign;
pub(crate) mod binary;
pub(crate) mod cast;
pub(crate) mod compare;
pub(crate) mod concat;
pub(crate) mod contiguous;
pub(crate) mod conv2d;
pub(crate) mod conv_transpose2d;
pub(crate) mod full;
pub(crate) mod gather;
pub(crate) mod index_select;
pub(crate) mod matmul;
pub(crate) mod pad;
pub(crate) mod pool2d;
pub(crate) mod random;
pub(crate) mod reduce;
pub(crate) mod scan;
pub(crate) mod scatter;
pub(crate) mod select;
pub(crate) mod top_k;
pub(crate) mod unary;
pub(crate) mod update_slice;
pub(crate) mod view;
