//! What is known about a device, and about one that is not there.

use std::fmt;

use rustorch_ir::DeviceType;

/// What computes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Hardware {
    /// The machine's processor, whichever driver it is reached through.
    Processor,
    /// A graphics processor, or an accelerator that is programmed like one.
    Gpu,
    /// A machine's units for neural networks.
    NeuralEngine,
}

/// What a device says of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceInfo {
    /// Which device it is.
    pub device: DeviceType,
    /// What it is.
    pub hardware: Hardware,
    /// Does it compute in the host's memory, so that nothing has to be copied?
    pub shares_host_memory: bool,
    /// Its name, for people: the processor's or driver's own.
    pub name: String,
    /// Bytes of memory that tensors can use, where it is known.
    pub memory_bytes: Option<u64>,
    /// What else it says: instruction sets, driver version, threads.
    pub details: Vec<(String, String)>,
}

/// The key of [`DeviceInfo::details`] for the bytes of one buffer, which some drivers make depend
/// on the memory that is free.
pub const LARGEST_BUFFER: &str = "largest buffer";

impl DeviceInfo {
    /// What stays the same from one start of the program to the next as long as device, driver
    /// and settings do: the name, and the details but [`LARGEST_BUFFER`], each with its key.
    pub fn identity(&self) -> impl Iterator<Item = (&str, &str)> {
        let details = self.details.iter().filter(|(key, _)| key != LARGEST_BUFFER);
        let details = details.map(|(key, value)| (key.as_str(), value.as_str()));
        std::iter::once(("name", self.name.as_str())).chain(details)
    }
}

/// A kind of device that could be asked for and is not there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Absent {
    /// What it is asked for by: `cuda`, `metal`, `opencl`, `coreml`.
    pub device: String,
    /// Why it is not there.
    pub reason: String,
    /// What would bring it, or does without it.
    pub cure: String,
}

impl Absent {
    /// `device` is not there for this reason; `cure` tells what to do.
    pub fn new(
        device: impl Into<String>,
        reason: impl Into<String>,
        cure: impl Into<String>,
    ) -> Self {
        Self {
            device: device.into(),
            reason: reason.into(),
            cure: cure.into(),
        }
    }
}

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.device, self.reason, self.cure)
    }
}
