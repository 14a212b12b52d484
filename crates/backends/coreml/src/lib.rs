//! Core ML as a device, except the calls that need a Mac: sub-graphs become ML Programs.
//!
//! Core ML compiles whole programs, in its own format. It decides by itself whether the processor,
//! the GPU or the Neural Engine runs an operation. An [`Emitter`] writes programs. [`check()`]
//! looks for faults that would crash Apple's compiler. All that needs a Mac is behind [`Api`].
//!
//! ```text
//! CoreMl (device.rs) ─► Emitter ─► check ─► load.rs: cache ─► Api ─► apple.rs: Core ML itself
//!          │                                  │                └► an emulator, in tests
//!          │                                  └ helper.rs: in a child process first
//!          └ boundary.rs: memory in place, conversions
//! ```

mod api;
#[cfg(any(target_os = "macos", target_os = "ios"))]
mod apple;
mod blocks;
mod boundary;
mod builder;
pub mod cache;
mod check;
mod constant;
mod device;
mod dump;
mod emit;
mod helper;
mod kernel;
mod load;
mod ops;
mod opset;
pub mod package;
pub mod proto;
pub mod weights;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

use rustorch_runtime::{Absent, Backend};

pub use api::{Api, ComputeUnit, ComputeUnits, ModelError, Output, Properties};
pub use check::{Flaw, check};
pub use device::{CoreMl, Options, Settings};
pub use emit::{Bound, EmitError, Emitted, Emitter, Feature, Start, Update};
pub use helper::{COMMAND, Helper, help_with};
pub use opset::{Opset, Precision, Target};
pub use package::Package;

/// Opens Core ML, which is one device.
///
/// # Errors
/// Fails if Core ML cannot be used. The error gives the reason.
#[cfg(any(target_os = "macos", target_os = "ios"))]
pub fn devices(options: Options) -> Result<Vec<Arc<dyn Backend>>, Absent> {
    devices_with(Settings::of_user(options)?)
}

/// [`devices`] with custom settings.
///
/// # Errors
/// Fails if Core ML cannot be used. The error gives the reason.
#[cfg(any(target_os = "macos", target_os = "ios"))]
pub fn devices_with(settings: Settings) -> Result<Vec<Arc<dyn Backend>>, Absent> {
    let device = CoreMl::new(apple::System::new(), 0, settings)?;
    Ok(vec![Arc::new(device)])
}

/// Does a [`Helper`]'s work with the system's Core ML, and returns the exit status.
#[cfg(any(target_os = "macos", target_os = "ios"))]
pub fn help(args: &[OsString]) -> ExitCode {
    help_with(&apple::System::new(), args)
}

/// Does nothing: Core ML is not on this machine.
#[cfg(not(any(target_os = "macos", target_os = "ios")))]
pub fn help(_args: &[OsString]) -> ExitCode {
    ExitCode::FAILURE
}

/// Opens Core ML, which is not on this machine.
///
/// # Errors
/// Always fails, since this is not one of Apple's systems.
#[cfg(not(any(target_os = "macos", target_os = "ios")))]
pub fn devices(options: Options) -> Result<Vec<Arc<dyn Backend>>, Absent> {
    devices_with(Settings::of_user(options)?)
}

/// [`devices`] with custom settings: Core ML is not on this machine.
///
/// # Errors
/// Always fails: this is none of Apple's systems.
#[cfg(not(any(target_os = "macos", target_os = "ios")))]
pub fn devices_with(_settings: Settings) -> Result<Vec<Arc<dyn Backend>>, Absent> {
    let cure = "use another device of this machine";
    Err(Absent::new(
        "coreml",
        "Core ML is on Apple's systems only",
        cure,
    ))
}
