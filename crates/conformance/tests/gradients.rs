//! Gradients of every operation, by central differences on the processor.

use std::sync::Arc;

use rustorch_conformance::{Extent, Suite};
use rustorch_cpu::Cpu;
use rustorch_ir::OpKind;

/// Operations without a gradient, without float results, or without a case in double precision. Others are
/// put in place of operations by rules of fusion.
const UNTRIED: [&str; 19] = [
    "full",
    "arange",
    "random",
    "compare",
    "embedding",
    "ldl",
    "ldl_solve",
    "lu_pivots_to_permutation",
    "geqrf",
    "channels_last",
    "fused_linear",
    "cached_attention",
    "add_rms_norm",
    "foreach",
    "foreach_reduce",
    "fused_norm",
    "fused_expert_linear",
    "top_k_softmax",
    "host",
];

#[test]
fn gradients_are_slopes() {
    let cpu = Arc::new(Cpu::new(2));
    let report = Suite::of_tests(|_| true, &*cpu).run_gradients(cpu);
    let failed: Vec<String> = (report.failed())
        .map(|(check, why)| format!("{}: {why}", check.case))
        .collect();
    assert!(failed.is_empty(), "{failed:#?}");
    let tried = |kind: &&OpKind| report.checks.iter().any(|check| check.kind == **kind);
    let untried: Vec<&str> = (OpKind::ALL.iter())
        .filter(|kind| !tried(kind))
        .map(|kind| kind.name())
        .collect();
    // A sample may leave out the only case of a dtype.
    if Extent::of_tests() == Extent::Full {
        assert_eq!(untried, UNTRIED);
    }
    assert!(report.passed() > 100);
    println!("{} passed", report.passed());
}
