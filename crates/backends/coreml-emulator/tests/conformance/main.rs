//! Every operation that becomes an ML Program: written, checked, read anew from its files and
//! evaluated, against the reference.

mod backend;
mod coremltools;
mod device;
mod norms;
mod random;
mod rotation;
mod states;
mod values;

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::Arc;

use rustorch_conformance::{Check, Outcome, Suite, check};
use rustorch_coreml::{Opset, Precision, Target};
use rustorch_ir::ops::philox;
use rustorch_ir::{BlockFormat, DType, Graph, OpKind};
use rustorch_runtime::Backend;
use rustorch_testing::{Suite as Tests, always, tests};

use crate::device::{Device, Known};

/// Operations that have to become a program in one form at least.
const CLAIMED: [OpKind; 30] = [
    OpKind::Full,
    OpKind::Reshape,
    OpKind::Permute,
    OpKind::Expand,
    OpKind::Slice,
    OpKind::Contiguous,
    OpKind::Cast,
    OpKind::Concat,
    OpKind::Pad,
    OpKind::Unary,
    OpKind::Binary,
    OpKind::Compare,
    OpKind::Where,
    OpKind::Activation,
    OpKind::Reduce,
    OpKind::IndexSelect,
    OpKind::Gather,
    OpKind::Matmul,
    OpKind::Linear,
    OpKind::Embedding,
    OpKind::Conv2d,
    OpKind::ConvTranspose2d,
    OpKind::Pool2d,
    OpKind::Softmax,
    OpKind::LayerNorm,
    OpKind::RmsNorm,
    OpKind::BatchNorm,
    OpKind::Attention,
    OpKind::Rope,
    OpKind::UpdateSlice,
];

/// Operations of these that need no constants.
fn claimed_without_weights() -> Vec<OpKind> {
    let without = |kind: &OpKind| *kind != OpKind::ConvTranspose2d;
    CLAIMED.into_iter().filter(without).collect()
}

fn target(opset: Opset, precision: Precision) -> Target {
    Target::new(opset, precision)
}

/// Returns whether it is a view of, or to, a tensor that a program cannot have. Devices are not asked whether they can
/// do views, so that these are tried.
fn has_no_tensor(check: &Check) -> bool {
    let views = [
        OpKind::Reshape,
        OpKind::Permute,
        OpKind::Expand,
        OpKind::Slice,
    ];
    let case = &check.case;
    let types = ["f32", "f16", "i32", "i64", "bool"];
    let is_known = types.iter().any(|ty| case.contains(&format!(" {ty}[")));
    let sizes = ["[0]", "[0, ", ", 0]", "start: 3, end: 3"];
    let is_empty = sizes.iter().any(|size| case.contains(size));
    views.contains(&check.kind) && (!is_known || is_empty)
}

/// Runs the cases on programs, and holds what passes to what is claimed.
fn conforms(device: impl Backend + 'static, claimed: &[OpKind]) {
    let report = check(Arc::new(device), |kind| CLAIMED.contains(&kind));
    let failed: Vec<String> = (report.failed())
        .filter(|(check, _)| !has_no_tensor(check))
        .map(|(check, why)| format!("{}: {why}", check.case))
        .collect();
    assert!(failed.is_empty(), "{} failed: {failed:#?}", failed.len());
    let [unseen, _] = report.unseen();
    assert!(unseen.is_empty(), "{unseen:#?}");
    // A case that stays as it is, not one that was taken apart or refused.
    let passed = |check: &&Check| check.outcome == Outcome::Passed && check.closeness.is_some();
    let native = (report.checks.iter().filter(passed))
        .filter(|check| !check.case.ends_with(", decomposed"))
        .map(|check| check.kind.name());
    let native: BTreeSet<&str> = native.collect();
    let claimed: BTreeSet<&str> = claimed.iter().map(|kind| kind.name()).collect();
    assert_eq!(native, claimed);
}

fn programs_give_what_the_reference_gives() {
    let target = target(Opset::CoreML6, Precision::F32);
    conforms(
        Device::new(target, Known::Nothing),
        &claimed_without_weights(),
    );
}

fn programs_with_weights_give_what_the_reference_gives() {
    let target = target(Opset::CoreML8, Precision::F32);
    conforms(Device::new(target, Known::AllButTheFirst), &CLAIMED);
}

fn programs_of_the_oldest_system_give_what_the_reference_gives() {
    let target = target(Opset::CoreML5, Precision::F32);
    conforms(Device::new(target, Known::AllButTheFirst), &CLAIMED);
}

/// Formats without minima, whose weights are the same elsewhere to the last bit.
fn exact() -> impl Iterator<Item = BlockFormat> {
    let formats = BlockFormat::ALL.iter().copied();
    formats.filter(|format| !format.has_minima())
}

/// Runs the cases of an operation whose weights are in blocks, which stay as they are.
fn stay_in_blocks(device: Device, kind: OpKind, formats: impl Iterator<Item = BlockFormat>) {
    let report = check(Arc::new(device), |other| other == kind);
    // Types that a program cannot have, and other checks of the same cases, which take them apart.
    let others = ["[0]", ", 0, ", "f64[", "bf16[", ", decomposed"];
    let has = |check: &&Check, parts: &[String]| parts.iter().any(|part| check.case.contains(part));
    let others = others.map(str::to_owned);
    let formats: Vec<String> = formats.map(|f| format!(" {f}[")).collect();
    let checks = report.checks.iter().filter(|check| has(check, &formats));
    let checks: Vec<&Check> = checks.filter(|check| !has(check, &others)).collect();
    assert!(!checks.is_empty(), "no case of {kind:?}");
    for check in checks {
        assert_eq!(check.outcome, Outcome::Passed, "{}", check.case);
    }
}

fn weights_in_blocks_stay_in_blocks() {
    for opset in [Opset::CoreML6, Opset::CoreML7, Opset::CoreML8] {
        let device = |known| Device::new(target(opset, Precision::F32), known);
        let formats = BlockFormat::ALL.iter().copied();
        stay_in_blocks(device(Known::AllButTheFirst), OpKind::Linear, formats);
        stay_in_blocks(device(Known::TheFirst), OpKind::Embedding, exact());
    }
}

/// Operands of a graph that stay away from where functions are not defined.
fn operands(graph: &Graph) -> Vec<Vec<u8>> {
    let fill = |(stream, ty): (usize, &rustorch_ir::TensorType)| {
        let number = |i: usize| {
            let word = philox(i as u64 / 4, stream as u64)[i % 4];
            0.25 + 0.5 * f64::from(word) / 32_f64.exp2()
        };
        let numbers: Vec<f64> = (0..ty.shape.elements()).map(number).collect();
        values::encode(ty.dtype, &numbers)
    };
    graph.inputs().iter().enumerate().map(fill).collect()
}

/// The sum of the squared differences over that of the squares.
fn error(result: &[f64], expected: &[f64]) -> f64 {
    let pairs = || result.iter().zip(expected).filter(|(_, b)| b.is_finite());
    let differences: f64 = pairs().map(|(a, b)| (a - b).powi(2)).sum();
    let squares: f64 = pairs().map(|(_, b)| b * b).sum();
    differences / squares.max(f64::MIN_POSITIVE)
}

fn half_precision_stays_near_single_precision() {
    let [single, half] = [Precision::F32, Precision::F16]
        .map(|precision| Device::new(target(Opset::CoreML7, precision), Known::Nothing));
    compare_precisions(&single, &half);
}

/// Runs graphs of single precision on both devices.
fn compare_precisions(single: &Device, half: &Device) {
    // Rounding may flip a comparison, or move a quotient across a whole number. Results then differ by
    // far more.
    let jumps = [OpKind::Compare, OpKind::Cast];
    let kinds = |kind: OpKind| CLAIMED.contains(&kind) && !jumps.contains(&kind);
    let suite = Suite::of_tests(kinds, half);
    let mut compared = 0;
    for graph in suite.graphs(1) {
        let is_single = |dtype: DType| dtype == DType::F32;
        let inputs = graph.inputs().iter().map(|ty| ty.dtype);
        if graph.nodes().iter().any(device::jumps) || !inputs.clone().any(is_single) {
            continue;
        }
        let operands = operands(&graph);
        let [Ok(expected), Ok(result)] = [single, half].map(|d| d.predict(&graph, &operands))
        else {
            continue;
        };
        for (result, expected) in result.iter().zip(&expected) {
            let [result, expected] = [result, expected].map(|bytes| {
                let dtype = graph.ty(graph.outputs()[0]).dtype;
                values::decode(dtype, bytes)
            });
            let error = error(&result, &expected);
            assert!(error < 5e-4, "{error:e} in\n{graph}");
            compared += 1;
        }
    }
    assert!(compared > 50, "{compared}");
}

fn main() -> ExitCode {
    Tests::new()
        .always(always![
            programs_give_what_the_reference_gives,
            programs_with_weights_give_what_the_reference_gives,
            programs_of_the_oldest_system_give_what_the_reference_gives,
            weights_in_blocks_stay_in_blocks,
            half_precision_stays_near_single_precision,
            random::graphs_give_what_the_reference_gives,
            norms::rows_of_halves_neither_overflow_nor_vanish,
            rotation::factors_of_frequencies_keep_single_precision,
            states::programs_that_keep_a_state_update_it,
            backend::results_are_the_references_in_memory_that_is_offered,
            backend::results_are_the_references_in_arrays_with_gaps,
        ])
        .on(
            coremltools::Python::find(),
            "RUSTORCH_TEST_COREMLTOOLS",
            tests![coremltools::takes_the_packages_and_gives_the_same],
        )
        .run()
}
