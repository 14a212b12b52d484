//! `run`: ONNX models on tensors of files.

use std::fs;
use std::path::{Path, PathBuf};

use rustorch_files::npy;
use rustorch_tensor::Tensor;

use crate::support::run;

/// A model of `scripts/onnx-goldens.py`.
fn model(name: &str) -> String {
    let goldens = Path::new(env!("CARGO_MANIFEST_DIR")).join("../onnx/tests/goldens");
    goldens.join(name).display().to_string()
}

/// A file with two rows for the model `perceptron.onnx`.
fn rows(folder: &Path) -> String {
    let rows = [1.0f32, 2.0, 3.0, 4.0, 2.0, -3.0, 1.0, 1.0];
    saved(
        folder,
        "rows.npy",
        &Tensor::from_slice(&rows, [2, 4]).unwrap(),
    )
}

fn saved(folder: &Path, name: &str, tensor: &Tensor) -> String {
    let path: PathBuf = folder.join(name);
    npy::save(&path, tensor).unwrap();
    path.display().to_string()
}

pub(crate) fn outputs_are_printed_and_written() {
    let folder = tempfile::tempdir().unwrap();
    let (model, x) = (model("perceptron.onnx"), rows(folder.path()));
    let out = folder.path().join("new/out");
    let named = format!("x={x}");
    let expected = "scores: f32[2, 3]\nclass/best: i64[2]\n";
    assert_eq!(run(["run", &model, "-b", "cpu", "-i", &x]).ok(), expected);
    let output = out.display().to_string();
    let args = [
        "run", &model, "--device", "cpu", "--input", &named, "--output", &output,
    ];
    assert_eq!(run(args).ok(), expected);
    let scores = npy::load(out.join("scores.npy")).unwrap();
    assert_eq!(
        scores.to_vec::<f32>().unwrap(),
        [49.0, 19.0, 8.0, 4.0, 1.0, -1.0]
    );
    let best = npy::load(out.join("class_best.npy")).unwrap();
    assert_eq!(best.to_vec::<i64>().unwrap(), [0, 0]);
    assert_eq!(fs::read_dir(out).unwrap().count(), 2);
}

pub(crate) fn a_graph_is_chosen_by_a_value() {
    let folder = tempfile::tempdir().unwrap();
    let numbers: Vec<f32> = (0..32).map(|i| (i - 15) as f32 / 8.0).collect();
    for (sign, expected) in [(1.0, 0.035_166_32), (-1.0, 1.625)] {
        let numbers: Vec<f32> = numbers.iter().map(|x| sign * x).collect();
        let x = Tensor::from_slice(&numbers, [1, 2, 4, 4]).unwrap();
        let x = saved(folder.path(), "x.npy", &x);
        let out = folder.path().display().to_string();
        let args = [
            "run",
            &model("parts.onnx"),
            "-b",
            "cpu",
            "-i",
            &x,
            "-o",
            &out,
        ];
        assert_eq!(run(args).ok(), "y: f32[1, 32]\n");
        let y = npy::load(folder.path().join("y.npy")).unwrap();
        let first = y.to_vec::<f32>().unwrap()[0];
        // onnxruntime's first element.
        assert!((first - expected).abs() < 1e-6, "{first}");
    }
}

#[track_caller]
fn refused(args: &[&str], status: i32, parts: &[&str]) {
    let line = run([&["run", "-b", "cpu"], args].concat()).error(status);
    for part in parts {
        assert!(line.contains(part), "no {part:?} in: {line}");
    }
}

pub(crate) fn wrong_inputs_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let model = model("perceptron.onnx");
    let x = rows(folder.path());
    let takes = "the model takes x: f32[batch, 4]";
    refused(&[&model], 1, &["no input \"x\" was given", takes]);
    let unknown = format!("k={x}");
    refused(&[&model, "-i", &x, "-i", &unknown], 1, &["\"k\"", takes]);
    refused(
        &[&model, "-i", &x, "-i", &x],
        2,
        &["every input has a file", takes],
    );
    let long = Tensor::from_slice(&[1i64, 2, 3, 4], [1, 4]).unwrap();
    let long = saved(folder.path(), "long.npy", &long);
    refused(&[&model, "-i", &long], 1, &["\"x\" is i64[1, 4]", takes]);
    let wide = Tensor::from_slice(&[1.0f32; 5], [1, 5]).unwrap();
    let wide = saved(folder.path(), "wide.npy", &wide);
    refused(&[&model, "-i", &wide], 1, &["\"x\" is f32[1, 5]", takes]);
    refused(&[&model, "-i", "x=/no/such.npy"], 1, &["/no/such.npy"]);
    refused(&[&model, "-i", &model], 1, &["perceptron.onnx"]);
    refused(&[&model, "-i", &x, "-o", &x], 1, &["rows.npy"]);
}

pub(crate) fn files_that_are_no_onnx_models() {
    let folder = tempfile::tempdir().unwrap();
    let broken = folder.path().join("broken.onnx");
    let whole = fs::read(model("parts.onnx")).unwrap();
    fs::write(&broken, &whole[..whole.len() / 2]).unwrap();
    let broken = broken.display().to_string();
    refused(&[&broken], 1, &["broken.onnx", "damaged"]);
    refused(&["/no/such.onnx"], 1, &["/no/such.onnx", "cannot open"]);
    let folder = folder.path().display().to_string();
    refused(&[&folder], 1, &[&folder, "not an ordinary file"]);
}
