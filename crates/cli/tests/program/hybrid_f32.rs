//! `-b hybrid-f32`: the CPU's text, without a conversion, and without a copy where devices share
//! the host's memory.

use std::io::Write;
use std::path::Path;

use rustorch_gguf::{GgmlType, Gguf, GgufWriter};
use serde_json::{Value, json};

use crate::support::{Run, model, model_arg, program, run};

const STORY: [&str; 8] = [
    "-p",
    "Once upon a time there was a king who",
    "-n",
    "6",
    "--temp",
    "0",
    "--format",
    "json",
];

fn story(more: &[&str]) -> Value {
    run(STORY.iter().chain(more)).json()
}

/// The OpenCL devices that share the host's memory. One that was promised has to be here.
fn shared_opencl() -> Vec<String> {
    let told = run(["devices", "--format", "json"]).json();
    let devices = told["devices"].as_array().unwrap().iter();
    let opencl = |d: &&Value| d["device"].as_str().unwrap().starts_with("opencl");
    let found: Vec<&Value> = devices.filter(opencl).collect();
    let promised = std::env::var_os("RUSTORCH_TEST_OPENCL").is_some();
    assert!(
        !found.is_empty() || !promised,
        "an OpenCL device was promised"
    );
    let shared = found
        .into_iter()
        .filter(|d| d["shares_host_memory"] == true);
    shared
        .map(|d| d["device"].as_str().unwrap().to_owned())
        .collect()
}

pub(crate) fn the_same_story_without_a_conversion() {
    let shared = shared_opencl();
    for file in ["classics-13m-Q4_K_M.gguf", "classics-13m-f16.gguf"] {
        let file = model_arg(file);
        let expected = story(&["-m", &file, "-b", "cpu"]);
        // Keys and values in f16: two stores a layer in each of six passes.
        assert_eq!(expected["conversions"], 72);
        let told = story(&["-m", &file, "-b", "hybrid-f32"]);
        assert_eq!(told["ids"], expected["ids"]);
        assert_eq!(told["text"], expected["text"]);
        assert_eq!(told["backend"], "hybrid-f32");
        assert_eq!(told["conversions"], 0);
        assert_eq!(told["fallbacks"], json!([]));
        if let [device] = &shared[..] {
            assert_eq!(told["devices"], json!(["cpu", device]));
            assert_eq!(
                (&told["copies"], &told["copied_bytes"]),
                (&json!(0), &json!(0))
            );
        }
    }
}

pub(crate) fn routes_and_failures_are_as_with_any_backend() {
    let expected = story(&["-b", "cpu"]);
    let routed = story(&[
        "-b",
        "hybrid-f32",
        "--route",
        "linear=cpu",
        "--route",
        "attention=cpu",
    ]);
    assert_eq!(routed["ids"], expected["ids"]);
    assert_eq!(routed["conversions"], 0);
    let faults = "device=cpu;op=rms_norm;nth=9;kind=unsupported";
    let failed = story(&["-b", "hybrid-f32", "--inject", faults]);
    assert_eq!(failed["ids"], expected["ids"]);
    assert_eq!(failed["fallbacks"][0]["op"], "rms_norm");
    assert_eq!(failed["conversions"], 0);
}

pub(crate) fn the_rules_are_explained() {
    let rows = run(["explain", "-p", "x", "-b", "hybrid-f32"]).ok();
    assert!(rows.contains("a product above 10 000 elements"), "{rows}");
    assert!(rows.contains("everything else runs on the CPU"), "{rows}");
}

pub(crate) fn without_a_gpu_it_says_that_the_cpu_does_it_all() {
    let mut command = program(STORY.iter().chain(&["-b", "hybrid-f32"]));
    let alone: Run = (command.env("RUSTORCH_DISABLE_GPU", "1").output())
        .expect("the program runs")
        .into();
    assert!(
        alone.stderr.contains("this machine has no GPU"),
        "{}",
        alone.stderr
    );
    assert_eq!(alone.json()["devices"], json!(["cpu"]));
}

pub(crate) fn the_summary_counts() {
    let told = run(["-p", "x", "-n", "1", "-b", "hybrid-f32"]);
    assert!(told.stderr.contains("0 conversions"), "{}", told.stderr);
}

/// The bundled model with a norm in `f64`.
fn write_doubles(path: &Path) {
    const NORM: &str = "output_norm.weight";
    let model = Gguf::open(model("classics-13m-Q4_K_M.gguf")).unwrap();
    let mut writer = GgufWriter::new(model.metadata.clone());
    for tensor in model.tensors() {
        let ty = if tensor.name == NORM {
            GgmlType::F64
        } else {
            tensor.ty
        };
        writer.add_tensor(&tensor.name, &*tensor.dims, ty).unwrap();
    }
    let fill = |tensor: &rustorch_gguf::TensorInfo, out: &mut dyn Write| match tensor.ty {
        GgmlType::F64 => out.write_all(&1f64.to_le_bytes().repeat(tensor.elements())),
        _ => out.write_all(model.data(model.tensor(&tensor.name).unwrap())),
    };
    writer.write(path, fill).unwrap();
}

/// The error of a run that ended with `status`. If there is no GPU, a warning says so before.
#[track_caller]
fn refusal(run: Run, status: i32) -> String {
    let lines = run.stderr.split_inclusive('\n');
    let errors =
        lines.filter(|line| !line.starts_with("warning: -b hybrid-f32: this machine has no GPU"));
    let stderr = errors.collect();
    Run { stderr, ..run }.error(status)
}

pub(crate) fn what_would_be_converted_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("doubles.gguf");
    write_doubles(&path);
    let file = path.to_str().unwrap();
    let line = refusal(
        run(["-m", file, "-p", "x", "-n", "1", "-b", "hybrid-f32"]),
        1,
    );
    for part in ["output_norm.weight", "f64", "quantize IN OUT F32"] {
        assert!(line.contains(part), "{line}");
    }
    // Other backends take it.
    run(["-m", file, "-p", "x", "-n", "1", "-b", "cpu"]).ok();

    let line = refusal(
        run(["-p", "x", "-b", "hybrid-f32", "-ctk", "f16", "-ctv", "f16"]),
        2,
    );
    assert!(line.contains("omit -ctk and -ctv"), "{line}");
}

pub(crate) fn the_mac_hybrid_needs_a_mac() {
    let told = run(["devices", "--format", "json"]).json();
    let devices = told["devices"].as_array().unwrap().iter();
    let mut names = devices.map(|d| d["device"].as_str().unwrap());
    if names.any(|name| name.starts_with("metal") || name.starts_with("coreml")) {
        assert_eq!(story(&["-b", "mac-hybrid"])["backend"], "mac-hybrid");
        return;
    }
    let line = run(["-p", "x", "-b", "mac-hybrid"]).error(1);
    for part in ["-b mac-hybrid", "Metal", "-b hybrid-f32", "-b auto"] {
        assert!(line.contains(part), "{line}");
    }
}
