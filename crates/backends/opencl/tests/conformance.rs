//! Every OpenCL device is held to the reference, in everything.

use std::sync::Arc;

use rustorch_conformance::{Check, check};
use rustorch_gpu::Gpu;
use rustorch_ir::{OpClass, OpKind};
use rustorch_runtime::Backend;

/// The operations of these families, on every device there is.
fn conform(classes: &[OpClass]) {
    let devices = rustorch_opencl::devices().unwrap_or_else(|absent| {
        let required = std::env::var_os("RUSTORCH_TEST_OPENCL").is_some();
        assert!(!required, "an OpenCL device was promised: {absent}");
        println!("skipped, since there is no OpenCL device: {absent}");
        Vec::new()
    });
    for device in devices {
        let device: Arc<dyn Backend> = Arc::new(Gpu::new(device));
        let of_class = |kind: OpKind| {
            let mut cases = kind.cases().into_iter();
            cases.any(|case| classes.contains(&case.op.def().class()))
        };
        let report = check(device, of_class);
        println!("{report}");
        assert_eq!(report.failed().count(), 0, "see the report above");
        // Of composites the decomposed form has to run, so no case is left out.
        let decomposed = |check: &Check| {
            let name = format!("{}, decomposed", check.case);
            report
                .checks
                .iter()
                .any(|c| c.kind == check.kind && c.case == name)
        };
        let left_out: Vec<String> = (report.skipped())
            .filter(|(check, _)| !decomposed(check))
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
