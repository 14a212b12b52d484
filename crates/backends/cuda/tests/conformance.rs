//! Every CUDA device is held to the reference, in everything.

mod common;

use common::gpus;
use rustorch_conformance::check_classes;
use rustorch_ir::OpClass;

/// The operations of these families, on every device there is.
fn conform(classes: &[OpClass]) {
    for device in gpus() {
        let report = check_classes(device, classes);
        println!("{report}");
        report.assert_complete();
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
