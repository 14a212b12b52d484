//! Figures from GPU drivers: load, memory and temperature.
//!
//! Figures that a driver does not report are `None`.

mod apple;
mod nvml;
mod sysfs;

use std::fmt;
use std::path::Path;

use rustorch_runtime::{DeviceInfo, DeviceType};
use serde::Serialize;

/// A GPU's state at a moment, as its driver reports it.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct GpuBenchmarkMetrics {
    /// Its name.
    pub name: String,
    /// The address on the PCI bus: domain, bus and device, as in `0000:19:00`.
    pub pci: Option<String>,
    /// The source of the figures: `NVML`, `sysfs` or `IOKit`.
    pub source: &'static str,
    /// Utilisation: the share of the last period in which it worked. NVML chooses a period of a
    /// sixth of a second to a second.
    pub gpu_utilization_percent: Option<f64>,
    /// Used bytes of its memory, by all programs together.
    pub gpu_memory_used_bytes: Option<u64>,
    /// Total bytes of its memory.
    pub gpu_memory_total_bytes: Option<u64>,
    /// Temperature of the chip.
    pub gpu_temperature_celsius: Option<f64>,
    /// Power draw.
    pub gpu_power_watts: Option<f64>,
    /// Clock of its processors.
    pub gpu_clock_mhz: Option<f64>,
    /// Clock of its memory.
    pub memory_clock_mhz: Option<f64>,
    /// Reasons for a reduced clock; empty if there are none.
    pub throttle_reasons: Option<Vec<&'static str>>,
}

impl GpuBenchmarkMetrics {
    /// The figures that change, by name.
    pub(crate) fn figures(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let throttled = self.throttle_reasons.as_ref().map(Vec::len);
        let figures = [
            ("gpu_utilization_percent", self.gpu_utilization_percent),
            (
                "gpu_memory_used_bytes",
                self.gpu_memory_used_bytes.map(|bytes| bytes as f64),
            ),
            ("gpu_temperature_celsius", self.gpu_temperature_celsius),
            ("gpu_power_watts", self.gpu_power_watts),
            ("gpu_clock_mhz", self.gpu_clock_mhz),
            ("memory_clock_mhz", self.memory_clock_mhz),
            ("throttle_reasons", throttled.map(|count| count as f64)),
        ];
        let known = figures.into_iter();
        known.filter_map(|(name, value)| Some((name, value?)))
    }

    /// The index among these devices; `None` if none has the same bus address.
    pub fn device<'a>(
        &self,
        devices: impl IntoIterator<Item = &'a DeviceInfo>,
    ) -> Option<DeviceType> {
        let pci = self.pci.as_ref()?;
        let is_it = |info: &&DeviceInfo| {
            let mut details = info.details.iter();
            details.any(|(key, value)| key == "PCI" && value == pci)
        };
        devices.into_iter().find(is_it).map(|info| info.device)
    }
}

impl fmt::Display for GpuBenchmarkMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        self.figures()
            .try_for_each(|(name, value)| write!(f, ", {name} {value}"))
    }
}

/// The connection of two GPUs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GpuLink {
    /// Their addresses on the bus.
    pub pci: [String; 2],
    /// The fastest way between them.
    pub path: GpuPath,
}

/// A way between two GPUs, the fastest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum GpuPath {
    /// NVLink, directly or through a switch.
    NvLink {
        /// Active links of the first GPU.
        links: usize,
    },
    /// One board.
    Board,
    /// Switches of PCI Express.
    PciSwitch,
    /// A host bridge.
    HostBridge,
    /// The bridges of one NUMA node.
    NumaNode,
    /// The connection between NUMA nodes.
    System,
}

impl fmt::Display for GpuPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NvLink { links } => write!(f, "NVLink, {links} links"),
            Self::Board => f.write_str("one board"),
            Self::PciSwitch => f.write_str("PCI Express switch"),
            Self::HostBridge => f.write_str("host bridge"),
            Self::NumaNode => f.write_str("NUMA node"),
            Self::System => f.write_str("between NUMA nodes"),
        }
    }
}

/// The drivers that report on GPUs, opened once.
pub struct GpuMonitor {
    /// Or why there is none.
    nvml: Result<nvml::Driver, String>,
}

impl GpuMonitor {
    /// Opens the drivers of this machine.
    pub fn open() -> Self {
        Self {
            nvml: nvml::Driver::open(),
        }
    }

    /// The reason why NVIDIA's driver reports nothing, if so.
    pub fn nvml_absent(&self) -> Option<&str> {
        self.nvml.as_ref().err().map(String::as_str)
    }

    /// The connections between GPUs whose drivers report them: NVIDIA's.
    pub fn links(&self) -> Vec<GpuLink> {
        (self.nvml.as_ref()).map_or(Vec::new(), nvml::Driver::links)
    }

    /// The current state of all GPUs whose drivers report.
    pub fn sample(&self) -> Vec<GpuBenchmarkMetrics> {
        let mut all = (self.nvml.as_ref()).map_or(Vec::new(), nvml::Driver::sample);
        all.extend(sysfs::sample(Path::new("/sys/class/drm")));
        all.extend(apple::sample());
        all
    }
}
