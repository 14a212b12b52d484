//! Kernels of `rustorch-cuda` that come compiled for NVIDIA's GPUs of compute capability 9.0 and newer.
//!
//! They are a crate of their own because of their size: a package may have 10 MiB.

/// A file of kernels, as `rustorch_cuda::pack` describes it; `scripts/make-ptx.sh` makes it.
pub static KERNELS: &[u8] = include_bytes!("../kernels.ptx.zst");
