//! NVIDIA's management library, which comes with the driver and is loaded at run time.

use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

use super::GpuBenchmarkMetrics;

/// What keeps clocks down, by NVML's names. That it has nothing to do is none of them.
const REASONS: [(ThrottleReasons, &str); 8] = [
    (
        ThrottleReasons::APPLICATIONS_CLOCKS_SETTING,
        "application clocks setting",
    ),
    (ThrottleReasons::SW_POWER_CAP, "power cap"),
    (ThrottleReasons::HW_SLOWDOWN, "hardware slowdown"),
    (ThrottleReasons::SYNC_BOOST, "sync boost"),
    (ThrottleReasons::SW_THERMAL_SLOWDOWN, "thermal slowdown"),
    (
        ThrottleReasons::HW_THERMAL_SLOWDOWN,
        "hardware thermal slowdown",
    ),
    (ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN, "power brake"),
    (
        ThrottleReasons::DISPLAY_CLOCK_SETTING,
        "display clock setting",
    ),
];

/// The library.
pub(super) struct Driver(Nvml);

impl Driver {
    /// Loads it.
    ///
    /// # Errors
    /// It is not there, or does not work with the driver, as one line.
    pub(super) fn open() -> Result<Self, String> {
        Nvml::init().map(Self).map_err(|e| format!("NVML: {e}"))
    }

    pub(super) fn sample(&self) -> Vec<GpuBenchmarkMetrics> {
        let count = self.0.device_count().unwrap_or(0);
        let devices = (0..count).filter_map(|index| self.0.device_by_index(index).ok());
        devices.map(|device| of(&device)).collect()
    }
}

/// What is told of a GPU. Functions that a version of the library, or a GPU, does not have tell
/// nothing.
fn of(device: &Device<'_>) -> GpuBenchmarkMetrics {
    let utilization = device.utilization_rates().ok();
    let memory = device.memory_info().ok();
    let number = |figure: Result<u32, NvmlError>| figure.ok().map(f64::from);
    GpuBenchmarkMetrics {
        name: device.name().unwrap_or_else(|_| "NVIDIA GPU".to_owned()),
        pci: device.pci_info().ok().map(|pci| {
            let (domain, bus, device) = (pci.domain, pci.bus, pci.device);
            format!("{domain:04x}:{bus:02x}:{device:02x}")
        }),
        source: "NVML",
        gpu_utilization_percent: utilization.map(|rates| f64::from(rates.gpu)),
        gpu_memory_used_bytes: memory.as_ref().map(|memory| memory.used),
        gpu_memory_total_bytes: memory.as_ref().map(|memory| memory.total),
        gpu_temperature_celsius: number(device.temperature(TemperatureSensor::Gpu)),
        gpu_power_watts: number(device.power_usage()).map(|milliwatts| milliwatts / 1e3),
        gpu_clock_mhz: number(device.clock_info(Clock::Graphics)),
        memory_clock_mhz: number(device.clock_info(Clock::Memory)),
        throttle_reasons: device.current_throttle_reasons().ok().map(reasons),
    }
}

fn reasons(set: ThrottleReasons) -> Vec<&'static str> {
    let all = REASONS.iter().filter(|(reason, _)| set.contains(*reason));
    all.map(|(_, name)| *name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_is_no_reason() {
        let set = ThrottleReasons::GPU_IDLE | ThrottleReasons::SW_POWER_CAP;
        assert_eq!(reasons(set), ["power cap"]);
        assert!(reasons(ThrottleReasons::GPU_IDLE).is_empty());
    }
}
