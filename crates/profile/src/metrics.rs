//! What the drivers of GPUs tell of them: how busy, full and warm they are.
//!
//! Nothing of it is computed here, and what a driver does not tell is `None`.

mod apple;
mod nvml;
mod sysfs;

use std::fmt;
use std::path::Path;

use rustorch_runtime::{DeviceInfo, DeviceType};
use serde::Serialize;

/// A GPU at a moment, as its driver tells it.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct GpuBenchmarkMetrics {
    /// Its name.
    pub name: String,
    /// Where it is on the PCI bus: domain, bus and device, as in `0000:19:00`.
    pub pci: Option<String>,
    /// Who told this: `NVML`, `sysfs` or `IOKit`.
    pub source: &'static str,
    /// Share of the last moment (of NVML's choice a sixth of a second to a second) in which it worked.
    pub gpu_utilization_percent: Option<f64>,
    /// Bytes of its memory that all programs together have.
    pub gpu_memory_used_bytes: Option<u64>,
    /// Bytes of its memory.
    pub gpu_memory_total_bytes: Option<u64>,
    /// Temperature of the chip.
    pub gpu_temperature_celsius: Option<f64>,
    /// Power that it draws.
    pub gpu_power_watts: Option<f64>,
    /// Clock of its processors.
    pub gpu_clock_mhz: Option<f64>,
    /// Clock of its memory.
    pub memory_clock_mhz: Option<f64>,
    /// Why it is clocked lower than it could be; empty if it is not.
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

    /// Which of these devices it is; `None` if none says where it is on the bus, or none is there.
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

/// The drivers that tell of GPUs, opened once.
pub struct GpuMonitor {
    /// Or why there is none.
    nvml: Result<nvml::Driver, String>,
}

impl GpuMonitor {
    /// Opens what is here. What is not there tells nothing.
    pub fn open() -> Self {
        Self {
            nvml: nvml::Driver::open(),
        }
    }

    /// Why NVIDIA's driver tells nothing, if it does not.
    pub fn nvml_absent(&self) -> Option<&str> {
        self.nvml.as_ref().err().map(String::as_str)
    }

    /// All GPUs whose drivers tell of them, now. NVIDIA's come first, in the order of `nvidia-smi`.
    pub fn sample(&self) -> Vec<GpuBenchmarkMetrics> {
        let mut all = (self.nvml.as_ref()).map_or(Vec::new(), nvml::Driver::sample);
        all.extend(sysfs::sample(Path::new("/sys/class/drm")));
        all.extend(apple::sample());
        all
    }
}
