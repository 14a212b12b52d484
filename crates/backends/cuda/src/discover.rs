//! Finding GPUs, and the reasons for missing ones.

use cudarc::driver::sys::{CUresult, cuDeviceGetCount, cuInit, is_culib_present};
use rustorch_runtime::{Absent, DeviceType};

use crate::Cuda;
use crate::device::{Device, LEAST_CAPABILITY, driver_version};
use crate::status::{Failure, check};

/// The oldest driver, by the CUDA version it is for: kernels that come compiled are for it, and
/// it is the first whose graphs know dependent launches.
const LEAST_DRIVER: i32 = 12040;

const INSTALL_DRIVER: &str = "install NVIDIA's driver, 550 or newer";

fn absent(reason: impl Into<String>, cure: &str) -> Absent {
    Absent::new("cuda", reason, cure)
}

/// Opens every GPU that the driver shows (`CUDA_VISIBLE_DEVICES` filters them). A device's index is
/// the driver's. A GPU that cannot be used is left out, with a line in the log.
///
/// # Errors
/// Fails if there is no device. The error gives the reason.
pub fn devices() -> Result<Vec<Cuda>, Absent> {
    // SAFETY: the driver's library does nothing when it is loaded.
    if !unsafe { is_culib_present() } {
        let reason = "NVIDIA's driver is not installed: there is no libcuda";
        return Err(absent(reason, INSTALL_DRIVER));
    }
    let failed = |failure: Failure| {
        let cure = match failure.status() {
            CUresult::CUDA_ERROR_NO_DEVICE => {
                "put an NVIDIA GPU in, or show it with CUDA_VISIBLE_DEVICES"
            }
            CUresult::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH => {
                "restart the system: its kernel has another version of the driver"
            }
            _ => "see whether nvidia-smi works; reinstall NVIDIA's driver if it does not",
        };
        absent(failure.to_string(), cure)
    };
    let version = driver_version().map_err(failed)?;
    if version < LEAST_DRIVER {
        let text = |v: i32| format!("{}.{}", v / 1000, v % 1000 / 10);
        let (has, needs) = (text(version), text(LEAST_DRIVER));
        let reason = format!("NVIDIA's driver is for CUDA {has}, and {needs} is needed");
        return Err(absent(reason, INSTALL_DRIVER));
    }
    // SAFETY: the only flags there are.
    check("cuInit", unsafe { cuInit(0) }).map_err(failed)?;
    let mut count = 0;
    // SAFETY: there is room for the number.
    check("cuDeviceGetCount", unsafe {
        cuDeviceGetCount(&raw mut count)
    })
    .map_err(failed)?;
    let mut devices = Vec::new();
    let mut left_out = Vec::new();
    for index in 0..count {
        match open(index) {
            Ok(device) => devices.push(device),
            Err(why) => {
                tracing::warn!("ignoring a CUDA device: {why}");
                left_out.push(why);
            }
        }
    }
    if devices.is_empty() {
        let why = match left_out.is_empty() {
            true => "NVIDIA's driver has no device".to_owned(),
            false => format!("no CUDA device can be used: {}", left_out.join("; ")),
        };
        return Err(absent(why, "use another device, such as opencl or cpu"));
    }
    Ok(devices)
}

fn open(index: i32) -> Result<Cuda, String> {
    let name = DeviceType::Cuda(usize::try_from(index).unwrap_or(0));
    let open = || {
        let device = Device::new(index)?;
        Ok::<_, Failure>((device, device.name()?, device.capability()?))
    };
    let (device, called, capability) = open().map_err(|f| format!("{name}: {f}"))?;
    if capability < LEAST_CAPABILITY {
        let text = |c: u32| format!("{}.{}", c / 10, c % 10);
        let (has, needs) = (text(capability), text(LEAST_CAPABILITY));
        return Err(format!(
            "{name} ({called}) has compute capability {has}, and {needs} is needed"
        ));
    }
    Cuda::new(device, name).map_err(|failure| format!("{name} ({called}): {failure}"))
}
