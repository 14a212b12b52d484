//! Every OpenCL device is held to the reference, in everything.
//!
//! PoCL compiles one kernel at a time, and there are thousands: each test works in a process of
//! its own, so that they do not wait for each other.

use std::process::{Command, ExitCode};
use std::sync::Arc;

use rustorch_conformance::{
    check_dropout, check_gradients, check_long_sums, check_times, check_types,
};
use rustorch_gpu::Gpu;
use rustorch_ir::OpType;
use rustorch_runtime::Backend;
use rustorch_testing::{Suite, tests};

type Devices = Vec<Arc<dyn Backend>>;

/// Says that this is the process that does the work.
const IS_WORKER: &str = "RUSTORCH_CONFORMANCE_WORKER";

/// The operations of these families, on every device, for the test of that name.
fn conform(devices: &[Arc<dyn Backend>], test: &str, types: &[Option<OpType>]) {
    in_a_process(test, || {
        for device in devices {
            let report = check_types(device.clone(), types, 3);
            println!("{report}");
            report.assert_complete();
        }
    });
}

/// Does the work of the test of that name in a process of its own.
fn in_a_process(test: &str, work: impl FnOnce()) {
    if std::env::var_os(IS_WORKER).is_some() {
        return work();
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

fn elementwise(devices: &Devices) {
    conform(
        devices,
        "elementwise",
        &[
            Some(OpType::Activation),
            Some(OpType::ComplexMath),
            Some(OpType::CustomKernel),
        ],
    );
}

fn moving_data_and_random_numbers(devices: &Devices) {
    conform(
        devices,
        "moving_data_and_random_numbers",
        &[None, Some(OpType::Distribution)],
    );
}

fn reductions_and_norms(devices: &Devices) {
    conform(
        devices,
        "reductions_and_norms",
        &[Some(OpType::Reduction), Some(OpType::Normalization)],
    );
}

fn products_and_convolutions(devices: &Devices) {
    conform(
        devices,
        "products_and_convolutions",
        &[Some(OpType::LinearAlgebra), Some(OpType::Convolution)],
    );
}

/// If a device has no double precision, the reference computes.
fn gradients(devices: &Devices) {
    in_a_process("gradients", || {
        devices.iter().cloned().for_each(check_gradients);
    });
}

fn times_are_told(devices: &Devices) {
    (devices.iter().cloned()).for_each(|device| check_times(device, true));
}

fn dropout_is_drawn_in_chains(devices: &Devices) {
    devices.iter().cloned().for_each(check_dropout);
}

fn long_sums_keep_their_digits(devices: &Devices) {
    devices.iter().cloned().for_each(check_long_sums);
}

fn main() -> ExitCode {
    let backend = |device| Arc::new(Gpu::new(device)) as Arc<dyn Backend>;
    let devices = rustorch_opencl::devices();
    let device = devices.map(|all| all.into_iter().map(backend).collect::<Devices>());
    let tests = tests![
        elementwise,
        moving_data_and_random_numbers,
        reductions_and_norms,
        products_and_convolutions,
        gradients,
        times_are_told,
        dropout_is_drawn_in_chains,
        long_sums_keep_their_digits,
    ];
    Suite::new().on(device, "RUSTORCH_TEST_OPENCL", tests).run()
}
