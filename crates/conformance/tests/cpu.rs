//! The CPU is held to the reference, in everything.

use std::process::Command;
use std::sync::Arc;

use rustorch_conformance::{check, check_dropout, check_long_sums, check_times};
use rustorch_cpu::Cpu;
use rustorch_cpu::Level;
use rustorch_ir::OpKind;

#[test]
fn the_cpu_conforms() {
    let report = check(Arc::new(Cpu::new(2)), |_| true);
    println!("{report}");
    report.assert_complete();
    // Composites have to run at least in decomposed form, so no case is left out.
    let mut primitives = OpKind::ALL.iter().filter(|kind| {
        let mut cases = kind.cases().into_iter();
        cases.all(|c| !c.op.def().is_composite())
    });
    assert!(primitives.all(|kind| report.checks.iter().any(|c| c.kind == *kind)));
}

#[test]
fn times_are_told() {
    check_times(Arc::new(Cpu::new(2)), true);
}

#[test]
fn dropout_is_drawn_in_chains() {
    check_dropout(Arc::new(Cpu::new(2)));
}

#[test]
fn long_sums_keep_their_digits() {
    check_long_sums(Arc::new(Cpu::new(2)));
}

/// A process has one level, so the others get processes of their own.
#[test]
fn every_level_conforms() {
    for level in Level::available() {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_cpu_conforms", "--nocapture"])
            .env("RUSTORCH_CPU_LEVEL", level.name())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{level}: {text}");
        assert!(text.contains("1 passed"), "{level}: {text}");
        println!("{level} conforms");
    }
}
