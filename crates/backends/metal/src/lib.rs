//! Metal as a driver of the GPU layer.
//!
//! All that needs a Mac is behind [`Api`]; the rest runs, and is tested, anywhere.
//!
//! ```text
//! Gpu ─► Metal (driver.rs) ─► queue.rs: command buffers ─► Api ─► apple.rs: Metal itself
//!             │                  └ hazards.rs: barriers       └► an emulator, in tests
//!             └ buffer.rs: host memory in place
//! ```

mod api;
#[cfg(target_os = "macos")]
mod apple;
mod buffer;
mod driver;
mod hazards;
mod queue;
mod status;

use std::sync::Arc;

use rustorch_gpu::Gpu;
use rustorch_runtime::{Absent, Backend};

pub use api::{Api, Binding, CommandError, Dispatch, Properties};
pub use buffer::Buffer;
pub use driver::{Kernel, Metal};

/// Opens every Metal device of this machine.
///
/// # Errors
/// Fails if there is no usable device. The error gives the reason.
#[cfg(target_os = "macos")]
pub fn devices() -> Result<Vec<Arc<dyn Backend>>, Absent> {
    backends(apple::devices()?)
}

/// Opens every Metal device of this machine, which can have none.
///
/// # Errors
/// Always fails: this is not a Mac.
#[cfg(not(target_os = "macos"))]
pub fn devices() -> Result<Vec<Arc<dyn Backend>>, Absent> {
    let cure = "use another device of this machine";
    Err(Absent::new("metal", "Metal exists on Macs only", cure))
}

/// The oldest of Apple's GPUs whose SIMD-groups add and multiply matrices: M1's.
const APPLE_FAMILY: u32 = 7;

/// Backends of those devices that kernels can run on. A device's index is its place in the result;
/// a device that is left out has a line in the log.
///
/// # Errors
/// Fails if no device can be used. The error gives the reason.
pub fn backends<A: Api>(found: Vec<A>) -> Result<Vec<Arc<dyn Backend>>, Absent> {
    let mut backends: Vec<Arc<dyn Backend>> = Vec::new();
    let mut left_out = Vec::new();
    for device in found {
        let properties = device.properties();
        if properties.apple_family >= APPLE_FAMILY && properties.has_unified_memory {
            let driver = Metal::new(device, backends.len());
            backends.push(Arc::new(Gpu::new(driver)));
        } else {
            tracing::warn!(
                "ignoring the Metal device {}: it cannot be opened",
                properties.name
            );
            left_out.push(properties.name.clone());
        }
    }
    if !backends.is_empty() {
        return Ok(backends);
    }
    let reason = match left_out.is_empty() {
        true => "the system has no Metal device".to_owned(),
        false => format!("no GPU of Apple's own: {}", left_out.join(", ")),
    };
    let cure = "a Mac with Apple silicon is needed (M1 or later)";
    Err(Absent::new("metal", reason, cure))
}
