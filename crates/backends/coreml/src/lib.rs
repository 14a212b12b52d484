//! Core ML as a device, as far as it does not take a Mac: sub-graphs become ML Programs.
//!
//! Core ML compiles whole programs, in a format of its own, and decides by itself which of the
//! processor, the GPU and the Neural Engine runs what.

mod opset;
pub mod package;
pub mod proto;
pub mod weights;

pub use opset::{Opset, Precision, Target};
pub use package::Package;
