//! Functions of elements.

pub(in crate::ops) mod activation;
pub(in crate::ops) mod binary;
pub(in crate::ops) mod compare;
pub(in crate::ops) mod select;
pub(in crate::ops) mod unary;
