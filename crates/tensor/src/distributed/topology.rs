//! The machine's GPUs.

use std::fmt;

#[cfg(feature = "profile")]
use rustorch_runtime::DeviceType;
use rustorch_runtime::{DeviceInfo, Hardware};

use crate::device::devices::runtime;

/// The GPUs of the current runtime, as the machine reports them.
#[derive(Clone, PartialEq, Debug)]
pub struct GpuTopology {
    /// The GPUs, best first, with their memory.
    pub devices: Vec<DeviceInfo>,
    /// The ways between pairs of them, as far as drivers report them: NVIDIA's, by NVML.
    #[cfg(feature = "profile")]
    pub links: Vec<(DeviceType, DeviceType, rustorch_profile::GpuPath)>,
}

impl GpuTopology {
    /// Reads it from the machine.
    pub fn detect() -> Self {
        let runtime = runtime();
        let is_gpu = |info: &&DeviceInfo| matches!(info.hardware, Hardware::Gpu);
        let devices: Vec<DeviceInfo> = runtime.devices().filter(is_gpu).cloned().collect();
        Self {
            #[cfg(feature = "profile")]
            links: links(&devices),
            devices,
        }
    }

    /// The number of GPUs.
    pub fn len(&self) -> usize {
        self.devices.len()
    }

    /// Has the machine no GPU?
    pub fn is_empty(&self) -> bool {
        self.devices.is_empty()
    }

    /// Bytes of memory of all GPUs, if each one's is known.
    pub fn memory_bytes(&self) -> Option<u64> {
        self.devices.iter().map(|device| device.memory_bytes).sum()
    }
}

#[cfg(feature = "profile")]
fn links(devices: &[DeviceInfo]) -> Vec<(DeviceType, DeviceType, rustorch_profile::GpuPath)> {
    if devices.len() < 2 {
        return Vec::new();
    }
    let at = |pci: &str| {
        let is_there = |info: &&DeviceInfo| {
            let mut details = info.details.iter();
            details.any(|(key, value)| key == "PCI" && value == pci)
        };
        devices.iter().find(is_there).map(|info| info.device)
    };
    let links = rustorch_profile::GpuMonitor::open().links();
    let known = |link: rustorch_profile::GpuLink| {
        let [first, second] = &link.pci;
        Some((at(first)?, at(second)?, link.path))
    };
    links.into_iter().filter_map(known).collect()
}

impl fmt::Display for GpuTopology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for info in &self.devices {
            write!(f, "{}: {}", info.device, info.name)?;
            if let Some(bytes) = info.memory_bytes {
                write!(f, ", {:.1} GiB", bytes as f64 / f64::from(1 << 30))?;
            }
            writeln!(f)?;
        }
        #[cfg(feature = "profile")]
        for (first, second, path) in &self.links {
            writeln!(f, "{first} and {second}: {path}")?;
        }
        Ok(())
    }
}
