//! Functions of elements.

pub(crate) mod binary;
pub(crate) mod compare;
pub(crate) mod select;
pub(crate) mod unary;
