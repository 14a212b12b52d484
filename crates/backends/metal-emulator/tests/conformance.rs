//! The Metal backend is held to the reference, in everything, on the emulated device: its
//! driver, and every kernel in the language that a Mac compiles.

use std::process::ExitCode;

use rustorch_conformance::{check_dropout, check_long_sums, check_times, check_types};
use rustorch_ir::OpType;
use rustorch_metal_emulator::Emulator;
use rustorch_testing::{Suite, tests};

/// The operations of these families.
fn conform(types: &[Option<OpType>]) {
    let emulator = Emulator::new().unwrap();
    let devices = rustorch_metal::backends(vec![emulator]).unwrap();
    let report = check_types(devices[0].clone(), types, 3);
    println!("{report}");
    report.assert_complete();
}

fn elementwise(_: &Emulator) {
    conform(&[
        Some(OpType::Activation),
        Some(OpType::ComplexMath),
        Some(OpType::CustomKernel),
    ]);
}

fn moving_data_and_random_numbers(_: &Emulator) {
    conform(&[None, Some(OpType::Distribution)]);
}

fn reductions_and_norms(_: &Emulator) {
    conform(&[Some(OpType::Reduction), Some(OpType::Normalization)]);
}

fn products_and_convolutions(_: &Emulator) {
    conform(&[Some(OpType::LinearAlgebra), Some(OpType::Convolution)]);
}

fn times_are_told(_: &Emulator) {
    let devices = rustorch_metal::backends(vec![Emulator::new().unwrap()]).unwrap();
    check_times(devices[0].clone(), true);
}

fn dropout_is_drawn_in_chains(_: &Emulator) {
    let devices = rustorch_metal::backends(vec![Emulator::new().unwrap()]).unwrap();
    check_dropout(devices[0].clone());
}

fn long_sums_keep_their_digits(_: &Emulator) {
    let devices = rustorch_metal::backends(vec![Emulator::new().unwrap()]).unwrap();
    check_long_sums(devices[0].clone());
}

fn main() -> ExitCode {
    let device = Emulator::new();
    let tests = tests![
        elementwise,
        moving_data_and_random_numbers,
        reductions_and_norms,
        products_and_convolutions,
        times_are_told,
        dropout_is_drawn_in_chains,
        long_sums_keep_their_digits,
    ];
    Suite::new().on(device, "RUSTORCH_TEST_METAL", tests).run()
}
