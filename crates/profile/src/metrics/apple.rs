//! Figures of Apple's GPU without special rights: `ioreg` prints the driver's counters.

use std::process::Command;

use super::GpuBenchmarkMetrics;

/// The GPUs of a Mac; none elsewhere.
pub(super) fn sample() -> Vec<GpuBenchmarkMetrics> {
    if !cfg!(target_os = "macos") {
        return Vec::new();
    }
    let told = Command::new("ioreg")
        .args(["-r", "-d", "1", "-w", "0", "-c", "IOAccelerator"])
        .output();
    match told {
        Ok(told) => read(&String::from_utf8_lossy(&told.stdout)),
        Err(_) => Vec::new(),
    }
}

/// The GPUs that `ioreg` prints, each an entry that begins with `+-o`.
fn read(text: &str) -> Vec<GpuBenchmarkMetrics> {
    let entries = text.split("+-o ").skip(1);
    let gpus = entries.filter(|entry| entry.contains("PerformanceStatistics"));
    gpus.map(|entry| {
        let number = |key: &str| -> Option<f64> {
            let (_, rest) = entry.split_once(&format!("\"{key}\"="))?;
            let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
            digits.parse().ok()
        };
        let model = entry.split_once("\"model\" = \"");
        let model = model.and_then(|(_, rest)| rest.split('"').next());
        GpuBenchmarkMetrics {
            name: model.unwrap_or("Apple GPU").to_owned(),
            source: "IOKit",
            gpu_utilization_percent: number("Device Utilization %"),
            gpu_memory_used_bytes: number("In use system memory").map(|bytes| bytes as u64),
            ..GpuBenchmarkMetrics::default()
        }
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ioreg_prints_is_read() {
        let text = r#"+-o AGXAcceleratorG16X  <class AGXAcceleratorG16X, id 0x1, registered>
    {
      "model" = "Apple M4 Pro"
      "PerformanceStatistics" = {"In use system memory (driver)"=0,"Device Utilization %"=12,"In use system memory"=524288}
    }
+-o Other  <class Other>
    {
    }
"#;
        let [gpu] = &read(text)[..] else {
            panic!("one GPU");
        };
        assert_eq!(gpu.name, "Apple M4 Pro");
        assert_eq!(gpu.gpu_utilization_percent, Some(12.0));
        assert_eq!(gpu.gpu_memory_used_bytes, Some(524_288));
        assert_eq!(
            (gpu.gpu_temperature_celsius, gpu.gpu_power_watts),
            (None, None)
        );
        assert!(read("").is_empty());
    }
}
