//! Kernels of CUDA's own for steps that are launched together.

pub(crate) mod attention;
pub(crate) mod matvec;
