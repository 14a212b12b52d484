//! Reasons for missing OpenCL devices, and cures.

use std::path::{Path, PathBuf};

use rustorch_runtime::Absent;

const INSTALL_DRIVER: &str = "install the GPU vendor's OpenCL driver, or PoCL for the \
                              processor (Debian: pocl-opencl-icd)";

fn absent(reason: impl Into<String>, cure: impl Into<String>) -> Absent {
    Absent::new("opencl", reason, cure)
}

pub(crate) fn no_library(why: &str) -> Absent {
    absent(
        format!("the OpenCL library cannot be loaded: {why}"),
        format!("install the ICD loader (Debian: ocl-icd-libopencl1); and {INSTALL_DRIVER}"),
    )
}

pub(crate) fn no_platform(why: &str) -> Absent {
    let place = if cfg!(any(windows, target_os = "macos")) {
        String::new()
    } else if std::env::var_os("OCL_ICD_VENDORS").is_some() {
        format!(" in {}, as OCL_ICD_VENDORS says", vendors().display())
    } else {
        format!(" in {}", vendors().display())
    };
    absent(
        format!("the OpenCL library finds no driver that works{place}{why}"),
        INSTALL_DRIVER,
    )
}

pub(crate) fn damaged(file: &Path) -> Absent {
    let file = file.display();
    absent(
        format!("{file} does not name an OpenCL driver, but has zero bytes"),
        format!("delete {file}, and install its driver again"),
    )
}

pub(crate) fn no_device(left_out: &[String]) -> Absent {
    let why = if left_out.is_empty() {
        "the OpenCL drivers have no device".to_owned()
    } else {
        format!("no OpenCL device can be used: {}", left_out.join("; "))
    };
    absent(why, INSTALL_DRIVER)
}

/// Folder in which the system lists its drivers: a folder of files that name one library each.
pub(crate) fn vendors() -> PathBuf {
    let folder = std::env::var_os("OCL_ICD_VENDORS");
    folder.map_or_else(|| "/etc/OpenCL/vendors".into(), PathBuf::from)
}
