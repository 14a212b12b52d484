//! Every CUDA device is held to the reference, in everything.

mod common;

use common::gpus;
use rustorch_conformance::check_types;
use rustorch_ir::OpType;

/// The operations of these families, on every device there is.
fn conform(types: &[Option<OpType>]) {
    for device in gpus() {
        let report = check_types(device, types);
        println!("{report}");
        report.assert_complete();
    }
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
