//! Files that Linux's drivers for GPUs of AMD and Intel write to `/sys/class/drm`.

use std::fs;
use std::path::{Path, PathBuf};

use super::GpuBenchmarkMetrics;

const AMD: &str = "0x1002";
const INTEL: &str = "0x8086";

/// The GPUs below a folder such as `/sys/class/drm`; none where there is no such folder.
pub(super) fn sample(drm: &Path) -> Vec<GpuBenchmarkMetrics> {
    let Ok(entries) = fs::read_dir(drm) else {
        return Vec::new();
    };
    // `card0`, but not its connectors, as `card0-DP-1`.
    let is_card = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let number = name.strip_prefix("card").unwrap_or_default();
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    };
    let mut cards: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(is_card)
        .collect();
    cards.sort();
    cards.iter().filter_map(|card| of(card)).collect()
}

fn of(card: &Path) -> Option<GpuBenchmarkMetrics> {
    let device = card.join("device");
    let vendor = fs::read_to_string(device.join("vendor")).ok()?;
    let name = match vendor.trim() {
        AMD => "AMD GPU",
        INTEL => "Intel GPU",
        _ => return None,
    };
    let sensors = sensors(&device.join("hwmon"));
    let sensor = |file: &str| number(&sensors.as_ref()?.join(file));
    let millionths = |value: f64| value / 1e6;
    // Files in which drivers have the clock, an older file of i915 first.
    let intel = || {
        let places = ["gt_act_freq_mhz", "gt/gt0/rps_act_freq_mhz"];
        let files = places.iter().map(|place| card.join(place));
        let files = files.chain([device.join("tile0/gt0/freq0/act_freq")]);
        files.into_iter().find_map(|file| number(&file))
    };
    let bytes = |file: &str| number(&device.join(file)).map(|bytes| bytes as u64);
    Some(GpuBenchmarkMetrics {
        name: product(&device).unwrap_or_else(|| name.to_owned()),
        pci: pci(&device),
        source: "sysfs",
        gpu_utilization_percent: number(&device.join("gpu_busy_percent")),
        gpu_memory_used_bytes: bytes("mem_info_vram_used"),
        gpu_memory_total_bytes: bytes("mem_info_vram_total"),
        gpu_temperature_celsius: sensor("temp1_input").map(|value| value / 1e3),
        gpu_power_watts: (sensor("power1_average").or_else(|| sensor("power1_input")))
            .map(millionths),
        gpu_clock_mhz: sensor("freq1_input").map(millionths).or_else(intel),
        memory_clock_mhz: sensor("freq2_input").map(millionths),
        throttle_reasons: None,
    })
}

/// The folder of its sensors.
fn sensors(hwmon: &Path) -> Option<PathBuf> {
    let mut entries: Vec<PathBuf> = fs::read_dir(hwmon)
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    entries.sort();
    entries.into_iter().next()
}

/// The number that a file has; `None` if there is no such file, or none in it.
fn number(file: &Path) -> Option<f64> {
    let value: f64 = fs::read_to_string(file).ok()?.trim().parse().ok()?;
    value.is_finite().then_some(value)
}

fn product(device: &Path) -> Option<String> {
    let name = fs::read_to_string(device.join("product_name")).ok()?;
    let name = name.trim();
    (!name.is_empty()).then(|| name.to_owned())
}

/// The address on the bus, without the function: the name of the folder that is linked to.
fn pci(device: &Path) -> Option<String> {
    let folder = fs::canonicalize(device).ok()?;
    let name = folder.file_name()?.to_string_lossy();
    let (place, _) = name.rsplit_once('.')?;
    Some(place.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_read_and_nothing_else() {
        let root = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("card0/device/vendor", "0x1002\n");
        write("card0/device/gpu_busy_percent", "37\n");
        write("card0/device/mem_info_vram_used", "1048576\n");
        write("card0/device/mem_info_vram_total", "8589934592\n");
        write("card0/device/hwmon/hwmon3/temp1_input", "51000\n");
        write("card0/device/hwmon/hwmon3/power1_average", "42000000\n");
        write("card0/device/hwmon/hwmon3/freq1_input", "1200000000\n");
        write("card0-DP-1/device/vendor", "0x1002\n");
        write("card1/device/vendor", "0x8086\n");
        write("card1/gt_act_freq_mhz", "350\n");
        write("card1/device/gpu_busy_percent", "of course\n");
        write("card2/device/vendor", "0x10de\n");
        write("renderD128/device/vendor", "0x1002\n");
        let found = sample(root.path());
        let [amd, intel] = &found[..] else {
            panic!("{found:?}");
        };
        assert_eq!(amd.gpu_utilization_percent, Some(37.0));
        assert_eq!(amd.gpu_memory_used_bytes, Some(1 << 20));
        assert_eq!(amd.gpu_memory_total_bytes, Some(8 << 30));
        assert_eq!(amd.gpu_temperature_celsius, Some(51.0));
        assert_eq!(amd.gpu_power_watts, Some(42.0));
        assert_eq!(amd.gpu_clock_mhz, Some(1200.0));
        assert_eq!((amd.memory_clock_mhz, &amd.throttle_reasons), (None, &None));
        assert_eq!(intel.name, "Intel GPU");
        assert_eq!(intel.gpu_clock_mhz, Some(350.0));
        assert_eq!(intel.figures().count(), 1);
        assert!(sample(&root.path().join("nothing")).is_empty());
    }
}
