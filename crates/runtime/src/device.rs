//! Facts about a device, or about a missing one.

use std::fmt;

use rustorch_ir::DeviceType;

/// A kind of hardware.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Hardware {
    /// The machine's CPU, through any driver.
    Processor,
    /// A GPU, or an accelerator that is programmed like one.
    Gpu,
    /// A machine's neural engine.
    NeuralEngine,
}

/// The description of a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceInfo {
    /// The device.
    pub device: DeviceType,
    /// The kind of hardware.
    pub hardware: Hardware,
    /// Whether it uses the host's memory, so that nothing has to be copied.
    pub shares_host_memory: bool,
    /// Its readable name, from the CPU or driver.
    pub name: String,
    /// Bytes of memory for tensors, if known.
    pub memory_bytes: Option<u64>,
    /// Further facts: instruction sets, driver version, threads.
    pub details: Vec<(String, String)>,
}

/// The key of [`DeviceInfo::details`] for the largest size of one buffer, which some drivers derive from the
/// free memory.
pub const LARGEST_BUFFER: &str = "largest buffer";

impl DeviceInfo {
    /// A text that identifies device, driver and settings between starts of the program: the name,
    /// and the details except [`LARGEST_BUFFER`].
    pub fn identity(&self) -> impl Iterator<Item = (&str, &str)> {
        let details = self.details.iter().filter(|(key, _)| key != LARGEST_BUFFER);
        let details = details.map(|(key, value)| (key.as_str(), value.as_str()));
        std::iter::once(("name", self.name.as_str())).chain(details)
    }
}

/// A known kind of device that is missing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Absent {
    /// The name that selects it: `cuda`, `metal`, `opencl`, `coreml`.
    pub device: String,
    /// The reason.
    pub reason: String,
    /// The remedy, or an alternative.
    pub cure: String,
}

impl Absent {
    /// `device` is missing for this reason; `cure` is the advice.
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
