//! Core ML as a device, as far as it does not take a Mac: sub-graphs become ML Programs.
//!
//! Core ML compiles whole programs, in a format of its own, and decides by itself which of the
//! processor, the GPU and the Neural Engine runs what. An [`Emitter`] writes them; [`check()`] looks
//! for what Apple's compiler would not survive. All that needs a Mac is behind [`Api`].
//!
//! ```text
//! CoreMl (device.rs) ─► Emitter ─► check ─► cache ─► Api ─► an emulator, in tests
//!          └ boundary.rs: memory in place, conversions
//! ```

mod api;
mod boundary;
mod builder;
pub mod cache;
mod check;
mod constant;
mod device;
mod emit;
mod kernel;
mod ops;
mod opset;
pub mod package;
pub mod proto;
pub mod weights;

pub use api::{Api, ComputeUnits, ModelError, Output, Properties};
pub use check::{Flaw, check};
pub use device::{CoreMl, Settings};
pub use emit::{EmitError, Emitted, Emitter, Feature};
pub use opset::{Opset, Precision, Target};
pub use package::Package;
