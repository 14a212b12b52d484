//! What drivers say of memory and limits, and what is made of it: by a driver that is made for
//! these tests, in processes of their own.

#![cfg(target_os = "linux")]

mod fake;

use rustorch_gpu::{Driver, Gpu};
use rustorch_runtime::{Backend, Runtime};

const MEMORY: &str = "FAKE_101f";
const BUFFER: &str = "FAKE_1010";
const EXTENSIONS: (&str, &str) = ("FAKE_1030", "cl_khr_fp16 cl_amd_device_attribute_query");
const FREE_KIB: &str = "FAKE_4039";

/// What [`list_device`] prints behind `= `, with these answers.
fn told(answers: &[(&str, &str)]) -> String {
    let out = fake::apart("list_device", answers);
    let line = out.lines().find_map(|line| line.split_once("= "));
    line.expect("a line of the device").1.to_owned()
}

#[test]
#[ignore = "run by others, in a process of its own"]
fn list_device() {
    let device = rustorch_opencl::devices().unwrap().remove(0);
    let (limits, told) = (*device.limits(), device.free_memory());
    let backend = Gpu::new(device);
    assert_eq!(backend.info().memory_bytes, Some(limits.memory));
    let pools = Runtime::new([std::sync::Arc::new(backend) as _])
        .memory()
        .pools();
    let mib = |bytes: u64| bytes >> 20;
    println!(
        "= told {:?}, free {:?} of {}, buffers {}, groups {}, units {}, local {}",
        told.map(mib),
        pools[0].free.map(mib),
        mib(limits.memory),
        mib(limits.max_buffer),
        limits.max_group,
        limits.compute_units,
        limits.local_bytes >> 10,
    );
}

const REST: &str = "buffers 1024, groups 256, units 32, local 64";

#[test]
fn what_other_programs_hold_counts_where_the_driver_tells() {
    let free = told(&[EXTENSIONS, (FREE_KIB, "512000")]);
    assert_eq!(
        free,
        format!("told Some(500), free Some(500) of 4096, {REST}")
    );
    // Without the extension the question is not asked, and without an answer it is none.
    let unknown = format!("told None, free Some(4096) of 4096, {REST}");
    assert_eq!(told(&[(FREE_KIB, "512000")]), unknown);
    assert_eq!(told(&[EXTENSIONS]), unknown);
}

#[test]
fn free_memory_that_cannot_be_is_not_believed() {
    for nonsense in ["0", "4194305", "18446744073709551615"] {
        let line = told(&[EXTENSIONS, (FREE_KIB, nonsense)]);
        assert!(
            line.contains("free Some(4096) of 4096"),
            "{nonsense}: {line}"
        );
    }
}

#[test]
fn limits_that_cannot_be_are_replaced() {
    for nonsense in ["0", "18446744073709551615"] {
        let line = told(&[
            (MEMORY, nonsense),
            (BUFFER, nonsense),
            ("FAKE_1002", nonsense),
            ("FAKE_1023", nonsense),
        ]);
        let safe = "free Some(512) of 512, buffers 128, groups 256, units 8, local 32";
        assert!(line.ends_with(safe), "{nonsense}: {line}");
    }
    let line = told(&[("FAKE_1004", "0")]);
    assert!(line.contains("groups 64"), "{line}");
}
