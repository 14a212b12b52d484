//! Functions of elements, elements combined, linear algebra.

pub(crate) mod elementwise;
pub mod fft;
pub(crate) mod histogram;
pub(crate) mod known;
pub mod linalg;
pub(crate) mod reduce;
pub(crate) mod scatter_reduce;
pub(crate) mod search;
pub(crate) mod segments;
pub(crate) mod statistics;
pub(crate) mod unique;
