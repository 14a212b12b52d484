//! Core ML as a device, as far as it does not take a Mac: sub-graphs become ML Programs.
//!
//! Core ML compiles whole programs, in a format of its own, and decides by itself which of the
//! processor, the GPU and the Neural Engine runs what. An [`Emitter`] writes them; [`check()`] looks
//! for what Apple's compiler would not survive.

mod builder;
pub mod cache;
mod check;
mod constant;
mod emit;
mod kernel;
mod ops;
mod opset;
pub mod package;
pub mod proto;
pub mod weights;

pub use check::{Flaw, check};
pub use emit::{EmitError, Emitted, Emitter, Feature};
pub use opset::{Opset, Precision, Target};
pub use package::Package;
