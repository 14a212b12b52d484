//! WebGPU as a driver of the GPU layer, natively: by Vulkan, DirectX 12 or Metal.
//!
//! The system's graphics library is loaded at run time. [`devices`] gives the devices, or the reason why there are
//! [none](rustorch_runtime::Absent). Kernels are in WGSL (`rustorch_gpu::Dialect::Wgsl`).

mod discover;
mod driver;
mod faults;

pub use discover::devices;
pub use driver::{Kernel, Wgpu};
