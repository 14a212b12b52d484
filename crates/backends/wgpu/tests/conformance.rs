//! Every WebGPU device is held to the reference, in everything.

use std::process::ExitCode;
use std::sync::Arc;

use rustorch_conformance::{check_gradients, check_times, check_types};
use rustorch_gpu::Gpu;
use rustorch_ir::OpType;
use rustorch_runtime::Backend;
use rustorch_testing::{Suite, tests};

type Devices = Vec<Arc<dyn Backend>>;

/// The operations of these families, on every device.
fn conform(devices: &[Arc<dyn Backend>], types: &[Option<OpType>]) {
    for device in devices {
        let report = check_types(device.clone(), types, 3);
        println!("{report}");
        // Cases without a kernel are skipped: they go down the chain.
        let failed: Vec<_> = report.failed().collect();
        assert!(report.passed() > 0 && failed.is_empty(), "{failed:#?}");
    }
}

fn elementwise(devices: &Devices) {
    let types = [
        OpType::Activation,
        OpType::ComplexMath,
        OpType::CustomKernel,
    ];
    conform(devices, &types.map(Some));
}

fn moving_data(devices: &Devices) {
    conform(devices, &[None]);
}

fn reductions_and_norms(devices: &Devices) {
    conform(
        devices,
        &[OpType::Reduction, OpType::Normalization].map(Some),
    );
}

fn products(devices: &Devices) {
    conform(devices, &[Some(OpType::LinearAlgebra)]);
}

/// There is no double precision, so the reference computes what needs it.
fn gradients(devices: &Devices) {
    devices.iter().cloned().for_each(check_gradients);
}

fn times_are_reported(devices: &Devices) {
    (devices.iter().cloned()).for_each(|device| check_times(device, true));
}

fn main() -> ExitCode {
    let backend = |device| Arc::new(Gpu::new(device)) as Arc<dyn Backend>;
    let devices = rustorch_wgpu::devices();
    let devices = devices.map(|all| all.into_iter().map(backend).collect::<Devices>());
    let tests = tests![
        elementwise,
        moving_data,
        reductions_and_norms,
        products,
        gradients,
        times_are_reported,
    ];
    Suite::new()
        .on(devices, "RUSTORCH_TEST_WEBGPU", tests)
        .run()
}
