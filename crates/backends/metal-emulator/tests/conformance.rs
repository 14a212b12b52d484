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
    assert_eq!(report.failed().count(), 0, "see the report above");
    // The language has no double precision.
    let is_double = |text: &str| {
        let text = text.to_lowercase();
        ["f64", "complex128"].iter().any(|name| text.contains(name))
    };
    let left_out: Vec<String> = (report.left_out())
        .map(|(check, why)| format!("{}: {why}", check.case))
        // Caches of blocks are the CPU's alone.
        .filter(|case| !case.contains("update_slice of Q8_0"))
        .filter(|text| !is_double(text))
        .collect();
    assert!(left_out.is_empty(), "{left_out:#?}");
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
