//! Every CUDA device is held to the reference, in everything.

mod common;

use std::process::ExitCode;

use common::{Gpus, run};
use rustorch_conformance::{check_dropout, check_times, check_types};
use rustorch_ir::OpType;
use rustorch_testing::tests;

/// The operations of these families, on every device.
fn conform(gpus: &Gpus, types: &[Option<OpType>]) {
    for device in gpus {
        let report = check_types(device.clone(), types, 1);
        println!("{report}");
        report.assert_complete();
    }
}

fn elementwise(gpus: &Gpus) {
    conform(
        gpus,
        &[
            Some(OpType::Activation),
            Some(OpType::ComplexMath),
            Some(OpType::CustomKernel),
        ],
    );
}

fn moving_data_and_random_numbers(gpus: &Gpus) {
    conform(gpus, &[None, Some(OpType::Distribution)]);
}

fn reductions_and_norms(gpus: &Gpus) {
    conform(
        gpus,
        &[Some(OpType::Reduction), Some(OpType::Normalization)],
    );
}

fn products_and_convolutions(gpus: &Gpus) {
    conform(
        gpus,
        &[Some(OpType::LinearAlgebra), Some(OpType::Convolution)],
    );
}

fn times_are_told(gpus: &Gpus) {
    // No chain comes compiled, but one may have been kept.
    let fuses = rustorch_cuda::compiler().is_ok();
    (gpus.iter().cloned()).for_each(|device| check_times(device, fuses));
}

fn dropout_is_drawn_in_chains(gpus: &Gpus) {
    gpus.iter().cloned().for_each(check_dropout);
}

fn main() -> ExitCode {
    run(tests![
        elementwise,
        moving_data_and_random_numbers,
        reductions_and_norms,
        products_and_convolutions,
        times_are_told,
        dropout_is_drawn_in_chains,
    ])
}
