//! Every CUDA device is held to the reference, in everything.

use std::sync::Arc;

use rustorch_conformance::check_classes;
use rustorch_gpu::Gpu;
use rustorch_ir::OpClass;
use rustorch_runtime::Backend;

/// The operations of these families, on every device there is.
fn conform(classes: &[OpClass]) {
    let devices = rustorch_cuda::devices().unwrap_or_else(|absent| {
        let required = std::env::var_os("RUSTORCH_TEST_CUDA").is_some();
        assert!(!required, "a CUDA device was promised: {absent}");
        println!("skipped, since there is no CUDA device: {absent}");
        Vec::new()
    });
    for device in devices {
        let device: Arc<dyn Backend> = Arc::new(Gpu::new(device));
        let report = check_classes(device, classes);
        println!("{report}");
        assert_eq!(report.failed().count(), 0, "see the report above");
        let left_out: Vec<String> = (report.left_out())
            .map(|(check, why)| format!("{}: {why}", check.case))
            .collect();
        assert!(left_out.is_empty(), "{left_out:#?}");
    }
}

#[test]
fn elementwise() {
    conform(&[OpClass::Activation, OpClass::ComplexMath]);
}

#[test]
fn moving_data_and_random_numbers() {
    conform(&[OpClass::Memory, OpClass::Distribution]);
}

#[test]
fn reductions_and_norms() {
    conform(&[OpClass::Reduction, OpClass::Normalization]);
}

#[test]
fn products_and_convolutions() {
    conform(&[OpClass::LinearAlgebra, OpClass::Convolution]);
}
