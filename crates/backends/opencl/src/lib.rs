//! OpenCL as a driver of the GPU layer.
//!
//! The OpenCL library is loaded at run time, so that a program needs none to start:
//! [`devices`] gives the devices there are, or says what is [`Absent`](rustorch_runtime::Absent).
//!
//! Memory of a device that shares the host's is host memory used in place. The standard decides
//! which side may use it: mapped, it is the host's; a launch hands it to the device.
//!
//! No wait for a device is longer than its [`Deadline`](rustorch_runtime::Deadline). Waits are for
//! events (`wait.rs`), and the compiler runs on a thread that can be given up.

mod absent;
mod api;
mod buffer;
mod context;
mod device;
mod discover;
mod driver;
mod milestones;
mod program;
mod quarantine;
mod status;
mod transfer;
mod wait;

pub use buffer::Buffer;
pub use discover::devices;
pub use driver::OpenCl;
pub use program::Kernel;
