//! Types of arguments.

pub(crate) mod dims;
pub(crate) mod element;
pub(crate) mod numbers;
pub(crate) mod setting;
pub(crate) mod windowed;
