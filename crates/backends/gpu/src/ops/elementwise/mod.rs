//! Functions of elements.

pub(in crate::ops) mod functions;
pub(crate) mod pointwise;
pub(in crate::ops) mod special;
