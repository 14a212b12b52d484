//! NVIDIA's management library, which comes with the driver and is loaded at run time.

use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{
    Clock, P2pCapabilitiesIndex, P2pStatus, TemperatureSensor,
};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

use super::{GpuBenchmarkMetrics, GpuLink, GpuPath};

/// The largest number of NVLink's links that a GPU has.
const NV_LINKS: u32 = 18;

/// Reasons of low clocks, by NVML's names. Idleness is none of them.
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
    /// Loads the library.
    ///
    /// # Errors
    /// Fails with one line if the library is missing or does not work with the driver.
    pub(super) fn open() -> Result<Self, String> {
        Nvml::init().map(Self).map_err(|e| format!("NVML: {e}"))
    }

    pub(super) fn sample(&self) -> Vec<GpuBenchmarkMetrics> {
        let count = self.0.device_count().unwrap_or(0);
        let devices = (0..count).filter_map(|index| self.0.device_by_index(index).ok());
        devices.map(|device| of(&device)).collect()
    }
}

impl Driver {
    /// The connections of all pairs of GPUs, as far as the library knows them.
    pub(super) fn links(&self) -> Vec<GpuLink> {
        let count = self.0.device_count().unwrap_or(0);
        let devices = (0..count).filter_map(|index| self.0.device_by_index(index).ok());
        let devices: Vec<Device<'_>> = devices.collect();
        let mut links = Vec::new();
        for (i, first) in devices.iter().enumerate() {
            for second in &devices[..i] {
                let ends = [second, first].map(address);
                if let ([Some(a), Some(b)], Some(path)) = (ends, path(first, second)) {
                    let pci = [a, b];
                    links.push(GpuLink { pci, path });
                }
            }
        }
        links
    }
}

/// The way from a GPU to another one.
fn path(first: &Device<'_>, second: &Device<'_>) -> Option<GpuPath> {
    let by_nvlink = first.p2p_status(second, P2pCapabilitiesIndex::NvLink);
    if by_nvlink.is_ok_and(|status| status == P2pStatus::Ok) {
        let is_active = |&link: &u32| first.link_wrapper_for(link).is_active().unwrap_or(false);
        let links = (0..NV_LINKS).filter(is_active).count();
        return Some(GpuPath::NvLink { links });
    }
    common_ancestor(first, second)
}

#[cfg(target_os = "linux")]
fn common_ancestor(first: &Device<'_>, second: &Device<'_>) -> Option<GpuPath> {
    use nvml_wrapper::enum_wrappers::device::TopologyLevel;

    let other = first
        .nvml()
        .device_by_pci_bus_id(second.pci_info().ok()?.bus_id);
    Some(match first.topology_common_ancestor(other.ok()?).ok()? {
        TopologyLevel::Internal => GpuPath::Board,
        TopologyLevel::Single | TopologyLevel::Multiple => GpuPath::PciSwitch,
        TopologyLevel::HostBridge => GpuPath::HostBridge,
        TopologyLevel::Node => GpuPath::NumaNode,
        TopologyLevel::System => GpuPath::System,
    })
}

/// Other systems' library does not say it.
#[cfg(not(target_os = "linux"))]
fn common_ancestor(_: &Device<'_>, _: &Device<'_>) -> Option<GpuPath> {
    None
}

/// The address on the bus, as devices of the runtime have it.
fn address(device: &Device<'_>) -> Option<String> {
    device.pci_info().ok().map(|pci| {
        let (domain, bus, device) = (pci.domain, pci.bus, pci.device);
        format!("{domain:04x}:{bus:02x}:{device:02x}")
    })
}

/// The figures of a GPU. Functions that a version of the library, or a GPU, lacks give no figure.
fn of(device: &Device<'_>) -> GpuBenchmarkMetrics {
    let utilization = device.utilization_rates().ok();
    let memory = device.memory_info().ok();
    let number = |figure: Result<u32, NvmlError>| figure.ok().map(f64::from);
    GpuBenchmarkMetrics {
        name: device.name().unwrap_or_else(|_| "NVIDIA GPU".to_owned()),
        pci: address(device),
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

/// Other versions of the library, which are loaded in their own processes.
#[cfg(all(test, target_os = "linux"))]
mod versions {
    use std::fs;
    use std::path::Path;
    use std::process::Command;

    use crate::GpuMonitor;

    const NAME: &str = "libnvidia-ml.so.1";
    /// Functions of every version. Failing functions return this status.
    const LIBRARY: &str = r#"
        #include <string.h>
        int nvmlInit_v2(void) { return STATUS; }
        int nvmlInitWithFlags(unsigned flags) { return STATUS; }
        int nvmlShutdown(void) { return 0; }
        const char* nvmlErrorString(int status) { return "a status"; }
        int nvmlDeviceGetCount_v2(unsigned* count) { return *count = 1, 0; }
        int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) { return *device = &nvmlInit_v2, 0; }
        int nvmlDeviceGetName(void* device, char* name, unsigned room) { return strcpy(name, "Old GPU"), 0; }
    "#;
    /// Functions of newer versions.
    const MORE: &str = r#"
        int nvmlDeviceGetUtilizationRates(void* device, unsigned* rates) { return rates[0] = 37, rates[1] = 5, 0; }
        int nvmlDeviceGetPowerUsage(void* device, unsigned* power) { return *power = 61500, 0; }
        int nvmlDeviceGetTemperature(void* device, int sensor, unsigned* celsius) { return 3; }
    "#;

    /// Run by the test below, with the library in its path.
    #[test]
    #[ignore = "run by another, in a process of its own"]
    fn tell() {
        let monitor = GpuMonitor::open();
        println!("= absent {:?}", monitor.nvml_absent());
        for gpu in monitor.sample().iter().filter(|gpu| gpu.source == "NVML") {
            println!("= {gpu}");
        }
    }

    /// The figures if the library in a folder is the only one.
    fn told(folder: &Path) -> Vec<String> {
        let ran = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "metrics::nvml::versions::tell",
                "--ignored",
                "--nocapture",
            ])
            .env("LD_LIBRARY_PATH", folder)
            .output()
            .unwrap();
        assert!(ran.status.success(), "{ran:?}");
        let out = String::from_utf8(ran.stdout).unwrap();
        let lines = out.lines().filter_map(|line| line.split_once("= "));
        lines.map(|(_, told)| told.to_owned()).collect()
    }

    fn with_library(source: &str, status: u32) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("nvml.c");
        fs::write(&file, source).unwrap();
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-w", "-o"])
            .arg(folder.path().join(NAME))
            .arg(format!("-DSTATUS={status}"))
            .arg(&file)
            .status();
        assert!(compiled.expect("a C compiler").success());
        told(folder.path())
    }

    #[test]
    fn what_a_version_does_not_have_is_not_told() {
        let old = with_library(LIBRARY, 0);
        assert_eq!(old, ["absent None", "Old GPU"]);
        let newer = with_library(&format!("{LIBRARY}{MORE}"), 0);
        let figures = "Old GPU, gpu_utilization_percent 37, gpu_power_watts 61.5";
        assert_eq!(newer, ["absent None", figures]);
    }

    #[test]
    fn a_library_that_is_missing_or_not_the_drivers_is_told_in_one_line() {
        // It is there, and of another version than the driver.
        let other = with_library(LIBRARY, 18);
        let [line] = &other[..] else {
            panic!("{other:?}");
        };
        assert!(
            line.starts_with("absent Some(\"NVML: ") && !line.contains("\\n"),
            "{line}"
        );
        // There is a file that is not a library.
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(NAME), "no library").unwrap();
        let none = told(folder.path());
        assert!(
            none.len() == 1 && none[0].starts_with("absent Some(\"NVML: "),
            "{none:?}"
        );
    }
}
