//! The Metal backend is held to the reference, in everything, on the emulated device: its
//! driver, and every kernel in the language that a Mac compiles.

use rustorch_conformance::check_types;
use rustorch_ir::OpType;
use rustorch_metal_emulator::Emulator;

/// The operations of these families.
fn conform(types: &[Option<OpType>]) {
    let Some(emulator) = Emulator::for_tests() else {
        return;
    };
    let devices = rustorch_metal::backends(vec![emulator]).unwrap();
    let report = check_types(devices[0].clone(), types);
    println!("{report}");
    report.assert_complete();
}

#[test]
fn elementwise() {
    conform(&[Some(OpType::Activation), Some(OpType::ComplexMath)]);
}

#[test]
fn moving_data_and_random_numbers() {
    conform(&[None, Some(OpType::Distribution)]);
}

#[test]
fn reductions_and_norms() {
    conform(&[Some(OpType::Reduction), Some(OpType::Normalization)]);
}

#[test]
fn products_and_convolutions() {
    conform(&[Some(OpType::LinearAlgebra), Some(OpType::Convolution)]);
}
