//! Every OpenCL device is held to the reference, in everything.
//!
//! PoCL compiles one kernel at a time, and there are thousands: each test works in a process of
//! its own, so that they do not wait for each other.

use std::process::Command;
use std::sync::Arc;

use rustorch_conformance::check_types;
use rustorch_gpu::Gpu;
use rustorch_ir::OpType;
use rustorch_runtime::Backend;

/// Says that this is the process that does the work.
const IS_WORKER: &str = "RUSTORCH_CONFORMANCE_WORKER";

/// The operations of these families, on every device there is, for the test of that name.
fn conform(test: &str, types: &[Option<OpType>]) {
    if std::env::var_os(IS_WORKER).is_some() {
        return work(types);
    }
    let program = std::env::current_exe().unwrap();
    let mut worker = Command::new(program);
    worker
        .args([test, "--exact", "--nocapture"])
        .env(IS_WORKER, "1");
    let output = worker.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    println!("{text}{errors}");
    assert!(output.status.success(), "see above");
    assert!(text.contains("1 passed"), "no test {test} has run");
}

fn work(types: &[Option<OpType>]) {
    let devices = rustorch_opencl::devices().unwrap_or_else(|absent| {
        let required = std::env::var_os("RUSTORCH_TEST_OPENCL").is_some();
        assert!(!required, "an OpenCL device was promised: {absent}");
        println!("skipped, since there is no OpenCL device: {absent}");
        Vec::new()
    });
    for device in devices {
        let device: Arc<dyn Backend> = Arc::new(Gpu::new(device));
        let report = check_types(device, types);
        println!("{report}");
        report.assert_complete();
    }
}

#[test]
fn elementwise() {
    conform(
        "elementwise",
        &[Some(OpType::Activation), Some(OpType::ComplexMath)],
    );
}

#[test]
fn moving_data_and_random_numbers() {
    conform(
        "moving_data_and_random_numbers",
        &[None, Some(OpType::Distribution)],
    );
}

#[test]
fn reductions_and_norms() {
    conform(
        "reductions_and_norms",
        &[Some(OpType::Reduction), Some(OpType::Normalization)],
    );
}

#[test]
fn products_and_convolutions() {
    conform(
        "products_and_convolutions",
        &[Some(OpType::LinearAlgebra), Some(OpType::Convolution)],
    );
}
