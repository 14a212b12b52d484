//! PyTorch's answers, replayed on Apple's devices as they are emulated: at kinks, ties and limits, and with mistakes in
//! data. The latter are replayed on OpenCL, too, and on a device that finds mistakes late.
//!
//! `goldens/edges-f32.tar.gz` is a dump of `scripts/edge-goldens.py` (`--dtypes f32`). The samples that fail on a device and
//! pass on the processor are those of `goldens/failing-emulated.json`, which has the reasons.
//! `RUSTORCH_EDGES=DIR` names another dump, of all functions: tests try some of it, with `RUSTORCH_TEST_FULL=1` all.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::{Arc, LazyLock};

use rustorch_conformance::Extent;
use rustorch_conformance::replay::{Options, run};
use rustorch_coreml::cache::Cache;
use rustorch_coreml::{CoreMl, Precision, Settings};
use rustorch_coreml_emulator::Emulated;
use rustorch_cpu::Cpu;
use rustorch_gpu::Gpu;
use rustorch_metal_emulator::Emulator;
use rustorch_runtime::{Backend, Routing, Runtime};
use rustorch_tensor::with_runtime;
use rustorch_testing::queued::Queued;
use rustorch_testing::{Suite, always, tests};
use serde::Deserialize;

/// Samples that fail on one device, and not on the processor.
#[derive(Deserialize)]
struct Group {
    device: String,
    reason: String,
    /// Names of samples, by operation.
    samples: BTreeMap<String, Vec<String>>,
}

/// The part of the output of `replay --format json` that is read here.
#[derive(Deserialize)]
struct Report {
    passed: usize,
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

#[derive(Deserialize)]
struct Manifest {
    files: BTreeMap<String, String>,
}

fn goldens() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("goldens")
}

/// Dumps, unpacked once: tests run side by side.
static EDGES: LazyLock<PathBuf> = LazyLock::new(|| {
    let named = std::env::var_os("RUSTORCH_EDGES");
    named.map_or_else(|| unpacked("edges-f32.tar.gz"), PathBuf::from)
});
static SAMPLE: LazyLock<PathBuf> = LazyLock::new(|| unpacked("sample.tar.gz"));

/// An archive in a folder of its own.
fn unpacked(archive: &str) -> PathBuf {
    let tmp = Path::new(env!("CARGO_TARGET_TMPDIR")).join("goldens-emulated");
    let folder = tmp.join(archive.trim_end_matches(".tar.gz"));
    std::fs::create_dir_all(&folder).unwrap();
    let mut tar = Command::new("tar");
    let archive = goldens().join(archive);
    tar.arg("-xzf").arg(archive).arg("-C").arg(&folder);
    assert!(tar.status().unwrap().success());
    folder
}

/// The operations that tests try.
fn chosen(folder: &Path) -> String {
    let manifest = std::fs::read_to_string(folder.join("manifest.json")).unwrap();
    let manifest: Manifest = serde_json::from_str(&manifest).unwrap();
    let ops = Extent::of_tests().choose(manifest.files.into_keys(), 6);
    ops.join(",")
}

/// Counts the samples that pass on `device`, and lists those that fail, with the reasons.
fn replayed(
    runtime: &Runtime,
    device: &str,
    folder: &Path,
    arguments: &[&str],
) -> (usize, BTreeMap<(String, String), String>) {
    let folder = folder.to_str().unwrap();
    let always = [folder, "-b", device, "--format", "json"];
    let options = Options::of(&[&always, arguments].concat()).unwrap();
    let mut out = Vec::new();
    with_runtime(runtime, Routing::AUTO, || run(&options, &mut out));
    let report: Report = serde_json::from_slice(&out).unwrap();
    let failures = report
        .ops
        .into_iter()
        .flat_map(|OpReport { op, failures }| {
            let named = move |Failure { sample, reason }| ((op.clone(), sample), reason);
            failures.into_iter().map(named)
        });
    (report.passed, failures.collect())
}

/// Holds what differs between a device and the processor to the list.
fn check(device: &str, backend: Arc<dyn Backend>) {
    let runtime = Runtime::new([backend, Arc::new(Cpu::new(1))]);
    let folder = &*EDGES;
    let ops = chosen(folder);
    let listed = std::fs::read_to_string(goldens().join("failing-emulated.json")).unwrap();
    let listed: BTreeMap<String, Vec<Group>> = serde_json::from_str(&listed).unwrap();
    let (mut unlisted, mut mended) = (Vec::new(), Vec::new());
    for (kind, arguments) in [("values", &[][..]), ("derivatives", &["--grad"])] {
        let arguments = [&["--ops", &ops], arguments].concat();
        let (passed, found) = replayed(&runtime, device, folder, &arguments);
        let (_, common) = replayed(&runtime, "cpu", folder, &arguments);
        println!("{device}, {kind}: {passed} passed, {} failed", found.len());
        let groups = listed[kind].iter().filter(|group| group.device == device);
        let mut expected = BTreeSet::new();
        for Group {
            reason, samples, ..
        } in groups
        {
            assert!(!reason.is_empty());
            for (op, names) in samples
                .iter()
                .filter(|(op, _)| ops.split(',').any(|o| o == *op))
            {
                expected.extend(names.iter().map(|name| (op.clone(), name.clone())));
            }
        }
        let differing = found
            .iter()
            .filter(|(sample, _)| !common.contains_key(*sample));
        for ((op, sample), reason) in differing {
            if !expected.remove(&(op.clone(), sample.clone())) {
                unlisted.push(format!("{kind}: {op} {sample}: {reason}"));
            }
        }
        mended.extend(expected);
    }
    assert!(
        unlisted.is_empty(),
        "fail, and are not listed: {unlisted:#?}"
    );
    assert!(
        mended.is_empty(),
        "are listed, and do not fail: {mended:#?}"
    );
}

fn at_kinks_ties_and_limits_metal_fails_where_it_is_listed(_: &Emulator) {
    let devices = rustorch_metal::backends(vec![Emulator::new().unwrap()]).unwrap();
    check("metal", devices[0].clone());
}

fn at_kinks_ties_and_limits_core_ml_fails_where_it_is_listed() {
    let folder = tempfile::tempdir().unwrap();
    let mut settings = Settings::new(Cache::new(folder.path(), 1 << 30));
    settings.options.precision = Precision::F32;
    check(
        "coreml",
        Arc::new(CoreMl::new(Emulated::new(15), 0, settings).unwrap()),
    );
}

/// Functions whose refused calls have indices out of range, and others behind them.
const INDEXED: &str = "gather,index_add,index_copy,scatter,scatter_add,softmax,take_along_dim";

/// Refused calls are refused, and fail no other sample, whenever a device finds the mistakes.
fn check_refused(device: &str, backend: Arc<dyn Backend>) {
    let runtime = Runtime::new([backend, Arc::new(Cpu::new(1))]);
    let folder = &*SAMPLE;
    for ops in [INDEXED, "scatter,gather,softmax,index_add"] {
        let arguments = ["--ops", ops];
        let (passed, found) = replayed(&runtime, device, folder, &arguments);
        let (expected, failing) = replayed(&runtime, "cpu", folder, &arguments);
        assert_eq!(found, failing, "{device}");
        assert_eq!(passed, expected, "{device}");
    }
}

fn refused_calls_touch_no_others_on_metal(_: &Emulator) {
    let devices = rustorch_metal::backends(vec![Emulator::new().unwrap()]).unwrap();
    check_refused("metal", devices[0].clone());
}

fn refused_calls_touch_no_others_on_opencl(devices: &Vec<Arc<dyn Backend>>) {
    let each = devices.iter().cloned();
    each.for_each(|device| check_refused("opencl", device));
}

fn refused_calls_touch_no_others_on_a_device_that_runs_ahead() {
    check_refused("cuda", Queued::over(Arc::new(Cpu::new(1))));
}

fn main() -> ExitCode {
    let backend = |device| Arc::new(Gpu::new(device)) as Arc<dyn Backend>;
    let opencl = rustorch_opencl::devices();
    let opencl = opencl.map(|all| all.into_iter().map(backend).collect::<Vec<_>>());
    Suite::new()
        .always(always![
            at_kinks_ties_and_limits_core_ml_fails_where_it_is_listed,
            refused_calls_touch_no_others_on_a_device_that_runs_ahead,
        ])
        .on(
            Emulator::new(),
            "RUSTORCH_TEST_METAL",
            tests![
                at_kinks_ties_and_limits_metal_fails_where_it_is_listed,
                refused_calls_touch_no_others_on_metal,
            ],
        )
        .on(
            opencl,
            "RUSTORCH_TEST_OPENCL",
            tests![refused_calls_touch_no_others_on_opencl],
        )
        .run()
}
