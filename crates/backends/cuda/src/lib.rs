//! CUDA as a driver of the GPU layer.
//!
//! NVIDIA's driver is loaded at run time, so a program can start without it. [`devices`] returns
//! the GPUs, or the reason why there is none. NVRTC, which compiles kernels, and cuBLASLt are used
//! if they are installed. Without NVRTC, the kernels of [`pack`] are used.
//!
//! All work of a device is in one stream. Repeated launches on the same buffers are recorded as a
//! CUDA graph.

// Apple has had no driver for CUDA since 2019.
#![cfg(not(target_vendor = "apple"))]

mod blas;
mod buffer;
mod context;
mod device;
mod discover;
mod driver;
mod event;
mod library;
mod mapped;
mod module;
mod nvrtc;
pub mod pack;
mod ptx;
mod recording;
mod spans;
mod staging;
mod status;

pub use buffer::Buffer;
pub use discover::devices;
pub use driver::Cuda;
pub use module::Kernel;
pub use recording::Recording;

/// Machine code of a source in the dialect, by NVRTC, without a device. The compute capability is
/// ten times the major number plus the minor one.
///
/// # Errors
/// Fails if NVRTC is not installed or rejects the source.
pub fn compile(source: &str, capability: u32) -> Result<Vec<u8>, String> {
    nvrtc::nvrtc()?.compile(source, capability)
}

/// PTX of a source in the dialect: by NVRTC, without a device.
///
/// # Errors
/// The same errors as [`compile`].
pub fn ptx(source: &str, target: pack::Target) -> Result<Vec<u8>, String> {
    nvrtc::nvrtc()?.ptx(source, target)
}

/// The version of NVRTC, major and minor number.
///
/// # Errors
/// Fails if NVRTC is not installed.
pub fn compiler() -> Result<(i32, i32), String> {
    Ok(nvrtc::nvrtc()?.version)
}
