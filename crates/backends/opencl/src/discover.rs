//! Finding devices, and the reasons for missing ones.

use std::path::PathBuf;
use std::ptr;
use std::sync::{Mutex, PoisonError};

use opencl_sys::*;
use rustorch_runtime::{Absent, DeviceType};

use crate::absent;
use crate::api::{Api, api};
use crate::device::Device;
use crate::driver::OpenCl;
use crate::status::{Failure, check};

/// Opens every OpenCL device there is: GPUs and accelerators first, then processors.
///
/// A device's index is its place in this list. A GPU that cannot be used is left out, with a line
/// in the log.
///
/// # Errors
/// Fails if there is no device. The error gives the reason.
pub fn devices() -> Result<Vec<OpenCl>, Absent> {
    // PoCL (3.1) shows other threads devices that it has not found out about yet.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(file) = damaged_file() {
        return Err(absent::damaged(&file));
    }
    let found = listed(api()?)?;
    let mut devices = Vec::with_capacity(found.len());
    let mut left_out = Vec::new();
    for device in found {
        match open(device, DeviceType::OpenCL(devices.len())) {
            Ok(device) => devices.push(device),
            Err(why) => {
                let line = format!("{}: {why}", device.name());
                tracing::warn!("ignoring an OpenCL device: {line}");
                left_out.push(line);
            }
        }
    }
    if devices.is_empty() {
        return Err(absent::no_device(&left_out));
    }
    Ok(devices)
}

/// A file there that holds zeros, as after a crash of the system. The widespread loader
/// `ocl-icd` (2.3) does not survive to read one.
fn damaged_file() -> Option<PathBuf> {
    let files = std::fs::read_dir(absent::vendors()).ok()?;
    let mut files = files.filter_map(|file| Some(file.ok()?.path()));
    files.find(|path| {
        path.extension().is_some_and(|extension| extension == "icd")
            && std::fs::read(path).is_ok_and(|text| text.contains(&0))
    })
}

fn open(device: Device, name: DeviceType) -> Result<OpenCl, String> {
    match device.unfit() {
        Ok(None) => OpenCl::new(device, name).map_err(|failure| failure.to_string()),
        Ok(Some(why)) => Err(why),
        Err(failure) => Err(failure.to_string()),
    }
}

/// The devices of all platforms, processors last.
fn listed(api: &'static Api) -> Result<Vec<Device>, Absent> {
    let platforms = match platforms(api) {
        Ok(platforms) if !platforms.is_empty() => platforms,
        Ok(_) => return Err(absent::no_platform("")),
        Err(failure) if failure.is(CL_PLATFORM_NOT_FOUND_KHR) => {
            return Err(absent::no_platform(""));
        }
        Err(failure) => return Err(absent::no_platform(&format!(" ({failure})"))),
    };
    let mut devices = Vec::new();
    for platform in platforms {
        match devices_of(api, platform) {
            Ok(found) => devices.extend(found),
            Err(failure) => tracing::warn!("ignoring an OpenCL platform: {failure}"),
        }
    }
    devices.sort_by_key(|device| device.is_processor().unwrap_or(true));
    Ok(devices)
}

fn platforms(api: &Api) -> Result<Vec<cl_platform_id>, Failure> {
    list("clGetPlatformIDs", |count, to, found| {
        // SAFETY: there is room for `count` ids.
        unsafe { (api.get_platform_ids)(count, to, found) }
    })
}

fn devices_of(api: &'static Api, platform: cl_platform_id) -> Result<Vec<Device>, Failure> {
    let kinds = CL_DEVICE_TYPE_GPU | CL_DEVICE_TYPE_ACCELERATOR | CL_DEVICE_TYPE_CPU;
    let ids = list("clGetDeviceIDs", |count, to, found| {
        // SAFETY: the platform is valid, and there is room for `count` ids.
        unsafe { (api.get_device_ids)(platform, kinds, count, to, found) }
    });
    let ids = match ids {
        Err(failure) if failure.is(CL_DEVICE_NOT_FOUND) => Vec::new(),
        ids => ids?,
    };
    // SAFETY: the platform listed it.
    let device = |id| unsafe { Device::new(api, platform, id) };
    Ok(ids.into_iter().map(device).collect())
}

/// Ids: `ask` returns their number first, and then the ids that fit.
fn list<T>(
    call: &'static str,
    ask: impl Fn(cl_uint, *mut *mut T, *mut cl_uint) -> cl_int,
) -> Result<Vec<*mut T>, Failure> {
    let mut count = 0;
    check(call, ask(0, ptr::null_mut(), &raw mut count))?;
    if count == 0 {
        return Ok(Vec::new());
    }
    let mut ids = vec![ptr::null_mut(); count as usize];
    check(call, ask(count, ids.as_mut_ptr(), &raw mut count))?;
    ids.truncate(count as usize);
    Ok(ids)
}
