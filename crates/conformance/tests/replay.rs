//! A sample of PyTorch's answers, replayed on the processor.
//!
//! `goldens/sample.tar.gz` is a dump of `scripts/torch-goldens.py` (seed 0, `--sample 5 --max-kib 1`).
//! `goldens/failing.json` lists the failing samples with their reasons: nothing else may fail, and mended samples leave
//! the list. `modules.tar.gz` and `failing-modules.json` are likewise of `scripts/module-goldens.py` (seed 0,
//! `--sample 3 --max-kib 3`). `gradients.tar.gz` and `failing-gradients.json` have some operations' gradients (seed 0,
//! `--grad --sample 4 --max-kib 1 --ops` those of its manifest). `onnx.tar.gz` is a sample of ONNX's own tests by
//! `scripts/onnx-sample.py`. `edges.tar.gz` is a dump of `scripts/edge-goldens.py` (`--dtypes f64`), of whose functions
//! tests try some; `failing-edges.json` and `failing-edge-gradients.json` list what fails of it. `edges-f32.tar.gz` has 43 of
//! the functions with `--dtypes f32`, and lists of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rustorch_conformance::Extent;
use serde::Deserialize;

/// Known failures.
#[derive(Deserialize)]
struct Known {
    /// So many samples pass, or more.
    passed: usize,
    failing: Vec<Group>,
}

/// Samples that fail for one reason.
#[derive(Deserialize)]
struct Group {
    reason: String,
    /// Names of samples, by operation.
    samples: BTreeMap<String, Vec<String>>,
}

impl Group {
    /// Its samples of these operations.
    fn of(mut self, ops: &[String]) -> Self {
        self.samples.retain(|op, _| ops.contains(op));
        self
    }
}

/// The part of a folder's manifest that is read here.
#[derive(Deserialize)]
struct Manifest {
    files: BTreeMap<String, String>,
}

/// Output of `replay --format json`, as far as it is read here.
#[derive(Deserialize)]
struct Report {
    passed: usize,
    failed: usize,
    not_implemented: usize,
    ops: Vec<OpReport>,
}

#[derive(Deserialize)]
struct OpReport {
    op: String,
    failures: Vec<Failure>,
}

#[derive(Deserialize)]
struct Failure {
    sample: String,
    reason: String,
}

fn goldens() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("goldens")
}

/// An archive in a folder of its own.
fn unpacked(archive: &str, name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).unwrap();
    let mut tar = Command::new("tar");
    tar.arg("-xzf")
        .arg(goldens().join(archive))
        .arg("-C")
        .arg(&folder);
    assert!(tar.status().unwrap().success());
    folder
}

fn replay(folder: &Path, arguments: &[&str]) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_replay"));
    program
        .arg(folder)
        .args(["-b", "cpu"])
        .args(arguments)
        .output()
        .unwrap()
}

#[test]
fn what_fails_is_what_is_listed() {
    check(
        &unpacked("sample.tar.gz", "goldens-all"),
        &[],
        "failing.json",
    );
}

#[test]
fn of_modules_and_optimizers_what_fails_is_what_is_listed() {
    let folder = unpacked("modules.tar.gz", "goldens-modules");
    check(
        &folder,
        &["--modules", "--optimizers"],
        "failing-modules.json",
    );
}

#[test]
fn of_gradients_what_fails_is_what_is_listed() {
    check(
        &unpacked("gradients.tar.gz", "goldens-gradients"),
        &["--grad"],
        "failing-gradients.json",
    );
}

#[test]
fn at_kinks_ties_and_limits_what_fails_is_what_is_listed() {
    at_edges(
        "edges.tar.gz",
        "failing-edges.json",
        "failing-edge-gradients.json",
    );
}

#[test]
fn at_kinks_ties_and_limits_of_single_precision_what_fails_is_what_is_listed() {
    at_edges(
        "edges-f32.tar.gz",
        "failing-edges-f32.json",
        "failing-edge-gradients-f32.json",
    );
}

/// Replays some functions of an archive of edges, of which what is in these lists fails.
fn at_edges(archive: &str, values: &str, gradients: &str) {
    let folder = unpacked(archive, archive.trim_end_matches(".tar.gz"));
    let manifest = std::fs::read_to_string(folder.join("manifest.json")).unwrap();
    let manifest: Manifest = serde_json::from_str(&manifest).unwrap();
    let chosen = Extent::of_tests().choose(manifest.files.into_keys(), 60);
    check_some(&folder, &[], values, &chosen);
    check_some(&folder, &["--grad"], gradients, &chosen);
}

/// Replays some operations of a folder, of which what is in a list fails, and nothing else.
fn check_some(folder: &Path, arguments: &[&str], list: &str, chosen: &[String]) {
    let ops = chosen.join(",");
    check_known(
        folder,
        &[&["--ops", &ops], arguments].concat(),
        Known {
            passed: 0,
            failing: known(list)
                .failing
                .into_iter()
                .map(|group| group.of(chosen))
                .collect(),
        },
    );
}

/// Replays a folder, of which what is in a list fails, and nothing else.
fn check(folder: &Path, arguments: &[&str], list: &str) {
    check_known(folder, arguments, known(list));
}

fn known(list: &str) -> Known {
    let known = std::fs::read_to_string(goldens().join(list)).unwrap();
    serde_json::from_str(&known).unwrap()
}

fn check_known(folder: &Path, arguments: &[&str], known: Known) {
    let output = replay(folder, &[&["--format", "json"], arguments].concat());
    let report: Report = serde_json::from_slice(&output.stdout).unwrap();
    let mut listed = BTreeSet::new();
    for group in &known.failing {
        assert!(!group.reason.is_empty());
        let samples = group.samples.iter();
        listed.extend(samples.flat_map(|(op, names)| names.iter().map(move |name| (op, name))));
    }
    let mut unlisted = Vec::new();
    for OpReport { op, failures } in &report.ops {
        for Failure { sample, reason } in failures {
            if !listed.remove(&(op, sample)) {
                unlisted.push(format!("{op} {sample}: {reason}"));
            }
        }
    }
    assert!(
        unlisted.is_empty(),
        "fail, and are not listed: {unlisted:#?}"
    );
    assert!(
        listed.is_empty(),
        "are listed, and do not fail: {listed:#?}"
    );
    assert!(
        report.passed >= known.passed,
        "{} passed, not {}",
        report.passed,
        known.passed
    );
    let summary = String::from_utf8(output.stderr).unwrap();
    let Report {
        passed,
        failed,
        not_implemented,
        ..
    } = report;
    let counts = format!("{passed} passed, {failed} failed, {not_implemented} not implemented");
    assert_eq!(summary.lines().last(), Some(&counts[..]));
    assert_eq!(output.status.code(), Some(i32::from(failed > 0)));
}

#[test]
fn onnx_is_computed_as_its_tests_say() {
    let folder = unpacked("onnx.tar.gz", "goldens-onnx");
    let output = replay(&folder, &["--onnx"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let last = text.lines().last();
    assert_eq!(
        last,
        Some("544 passed, 0 failed, 0 not implemented"),
        "{text}"
    );
}

#[test]
fn operations_are_chosen_and_summed_up() {
    let folder = unpacked("sample.tar.gz", "goldens-some");
    let output = replay(&folder, &["--ops", "add,logical_not"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}");
    assert!(
        lines[0].starts_with("PyTorch ") && lines[0].ends_with(", seed 0 on cpu"),
        "{text}"
    );
    assert!(
        lines[1].starts_with("add ") && lines[2].starts_with("logical_not "),
        "{text}"
    );
    assert!(
        lines[3].ends_with(" passed, 0 failed, 0 not implemented"),
        "{text}"
    );
    assert_eq!(output.status.code(), Some(0));
    for bad in [&["--ops", "no_such"][..], &["-b", "toaster"], &["--onnx"]] {
        let output = replay(&folder, bad);
        assert_eq!(output.status.code(), Some(2), "{bad:?}");
        assert!(
            output.stdout.is_empty() && !output.stderr.is_empty(),
            "{bad:?}"
        );
    }
}
