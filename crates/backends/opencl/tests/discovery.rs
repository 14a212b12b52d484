//! Devices that are found, and reported as missing, in different surroundings. OpenCL libraries
//! look at the environment once, when they are loaded, so each case is a process of its own.

use std::path::Path;
use std::process::{Command, ExitCode};

use libloading::Library;
use rustorch_testing::{Suite, always, tests};

/// Has this program look for devices instead of testing.
const VARIABLE: &str = "RUSTORCH_DISCOVER";

fn discover() {
    match rustorch_opencl::devices() {
        Ok(devices) => println!("found {}", devices.len()),
        Err(absent) => println!("absent: {} | {}", absent.reason, absent.cure),
    }
}

/// Output of [`discover`] with this variable set.
fn discover_with(variable: &str, value: &Path) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .env(VARIABLE, "1")
        .env(variable, value)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The library that finds drivers; without it no list of drivers is read.
fn find_loader() -> Result<Library, String> {
    // SAFETY: loading the system's own library has no effect on what the tests look at.
    unsafe { Library::new("libOpenCL.so.1") }.map_err(|e| format!("no OpenCL loader: {e}"))
}

fn no_drivers(_: &Library) {
    let vendors = tempfile::tempdir().unwrap();
    let said = discover_with("OCL_ICD_VENDORS", vendors.path());
    assert!(
        said.contains("absent:") && said.contains("OCL_ICD_VENDORS"),
        "{said}"
    );
}

fn drivers_that_do_not_load(_: &Library) {
    let vendors = tempfile::tempdir().unwrap();
    let garbage = vendors.path().join("garbage.so");
    std::fs::write(&garbage, b"no library").unwrap();
    for (name, library) in [
        ("missing.icd", "/nowhere/libnone.so\n".as_ref()),
        ("garbage.icd", garbage.as_os_str()),
        ("other.icd", "libm.so.6".as_ref()),
        ("binary.icd", "\u{1}\u{2}".as_ref()),
        ("empty.icd", "".as_ref()),
    ] {
        std::fs::write(vendors.path().join(name), library.as_encoded_bytes()).unwrap();
    }
    let said = discover_with("OCL_ICD_VENDORS", vendors.path());
    assert!(
        said.contains("absent:") && said.contains("install"),
        "{said}"
    );
}

fn a_damaged_list_of_drivers(_: &Library) {
    let vendors = tempfile::tempdir().unwrap();
    std::fs::write(vendors.path().join("driver.icd"), [0; 16]).unwrap();
    let said = discover_with("OCL_ICD_VENDORS", vendors.path());
    assert!(
        said.contains("absent:") && said.contains("driver.icd"),
        "{said}"
    );
}

fn no_library() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("libOpenCL.so.1"), b"no library").unwrap();
    let said = discover_with("LD_LIBRARY_PATH", folder.path());
    assert!(
        said.contains("absent:") && said.contains("libOpenCL.so.1"),
        "{said}"
    );
    assert!(said.contains("ocl-icd-libopencl1"), "{said}");
}

fn main() -> ExitCode {
    if std::env::var_os(VARIABLE).is_some() {
        discover();
        return ExitCode::SUCCESS;
    }
    // On other systems the drivers are listed in places that a test cannot change.
    if cfg!(not(target_os = "linux")) {
        return Suite::new().run();
    }
    let listed = tests![
        no_drivers,
        drivers_that_do_not_load,
        a_damaged_list_of_drivers
    ];
    Suite::new()
        .always(always![no_library])
        .on(find_loader(), "RUSTORCH_TEST_OPENCL", listed)
        .run()
}
