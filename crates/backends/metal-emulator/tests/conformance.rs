//! The Metal backend is held to the reference, in everything, on the emulated device: its
//! driver, and every kernel in the language that a Mac compiles.

use rustorch_conformance::check_classes;
use rustorch_ir::OpClass;
use rustorch_metal_emulator::Emulator;

/// The operations of these families.
fn conform(classes: &[OpClass]) {
    let Some(emulator) = Emulator::for_tests() else {
        return;
    };
    let devices = rustorch_metal::backends(vec![emulator]).unwrap();
    let report = check_classes(devices[0].clone(), classes);
    println!("{report}");
    report.assert_complete();
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
