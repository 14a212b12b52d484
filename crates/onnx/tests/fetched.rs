//! Models of others' making, which `scripts/fetch-onnx.sh` fetches, give onnxruntime's answers.
//!
//! `scripts/onnx-goldens.py` wrote the answers.

use std::path::Path;
use std::process::ExitCode;

use rustorch_files::{Tensors, safetensors};
use rustorch_ir::DType;
use rustorch_onnx::{Model, Value};
use rustorch_tensor::Tensor;
use rustorch_testing::fetched::{ModelFile, onnx};
use rustorch_testing::{Suite, tests};

/// Largest difference between probabilities.
const CLOSE: f64 = 1e-5;

fn goldens(name: &str) -> Tensors {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens");
    safetensors::load(folder.join(name)).unwrap()
}

fn tensor(value: &Value) -> &Tensor {
    match value {
        Value::Tensor(tensor) => tensor,
        other => panic!("{other} is not a tensor"),
    }
}

#[track_caller]
fn assert_near(found: &Tensor, expected: &Tensor) {
    assert_eq!(found.shape(), expected.shape());
    let difference = found.sub(expected).unwrap().abs().unwrap();
    let largest = difference
        .max(.., false)
        .unwrap()
        .to_scalar::<f32>()
        .unwrap();
    assert!(f64::from(largest) < CLOSE, "{largest} apart");
}

/// Pieces of a sound, with the samples before them, and the state that the last piece left.
fn silero_finds_speech_as_onnxruntime_does(file: &ModelFile) {
    let model = Model::load(&file.0).unwrap();
    let goldens = goldens("silero.safetensors");
    for (rate, piece, before) in [(16000, 512, 64), (8000, 256, 32)] {
        let get = |name: &str| goldens.get(&format!("{rate}.{name}")).unwrap();
        let (sound, expected) = (get("sound"), get("outputs"));
        let mut state = Tensor::zeros([2, 1, 128], DType::F32).unwrap();
        let mut outputs = Vec::new();
        for at in 0..expected.shape()[0] {
            let part = sound.narrow(0, at * piece, piece + before).unwrap();
            let results = model
                .run([
                    ("input", part.unsqueeze(0).unwrap()),
                    ("state", state),
                    ("sr", Tensor::scalar(rate, DType::I64).unwrap()),
                ])
                .unwrap();
            outputs.push(tensor(&results[0].1).clone());
            state = tensor(&results[1].1).clone();
        }
        assert_near(&Tensor::cat(&outputs, 0).unwrap(), expected);
        assert_near(&state, get("state"));
    }
}

fn magika_names_files_as_onnxruntime_does(file: &ModelFile) {
    let model = Model::load(&file.0).unwrap();
    let goldens = goldens("magika.safetensors");
    let results = model
        .run([("bytes", goldens.get("bytes").unwrap())])
        .unwrap();
    assert_near(tensor(&results[0].1), goldens.get("labels").unwrap());
}

fn main() -> ExitCode {
    let promise = "RUSTORCH_TEST_ONNX";
    Suite::new()
        .on(
            onnx("silero_vad.onnx"),
            promise,
            tests![silero_finds_speech_as_onnxruntime_does],
        )
        .on(
            onnx("magika.onnx"),
            promise,
            tests![magika_names_files_as_onnxruntime_does],
        )
        .run()
}
