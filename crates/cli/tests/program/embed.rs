//! `embed` and `rerank`: vectors and scores of texts, in each format.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::{run, run_with_input};

/// A small encoder, or one with a classifier, as `transformers` saves them.
fn folder(name: &str) -> PathBuf {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../llm/tests/data");
    data.join("hugging_face_encoders").join(name)
}

fn encoder() -> String {
    folder("bert").display().to_string()
}

/// Texts and what `transformers` makes of them.
fn expected(name: &str) -> (Vec<String>, Value) {
    let text = fs::read_to_string(folder(name).join("expected.json")).unwrap();
    let json: Value = serde_json::from_str(&text).unwrap();
    let texts = json["texts"].as_array().unwrap().iter();
    let texts = texts.map(|text| text.as_str().unwrap().to_owned());
    (texts.collect(), json["rows"].clone())
}

fn numbers(value: &Value) -> Vec<f64> {
    match value {
        Value::Array(list) => list.iter().flat_map(numbers).collect(),
        number => vec![number.as_f64().unwrap()],
    }
}

#[track_caller]
fn near(found: &Value, expected: &Value) {
    let (found, expected) = (numbers(found), numbers(expected));
    assert_eq!(found.len(), expected.len());
    for (a, b) in found.iter().zip(&expected) {
        assert!((a - b).abs() < 1e-4, "{a}, not {b}");
    }
}

/// Runs `embed` on the CPU.
fn embed(args: &[&str]) -> Value {
    let encoder = encoder();
    let all = [&["embed", "-b", "cpu", "-m", &encoder], args].concat();
    run(all).json()
}

pub(crate) fn texts_come_from_everywhere() {
    let (texts, rows) = expected("bert");
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let plain = ["--normalize", "-1"];
    near(&embed(&[&plain[..], &texts].concat()), &rows);
    near(&embed(&["--normalize", "-1", "-p", texts[0]]), &rows[0]);
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), texts.join("\n\n")).unwrap();
    let path = file.path().to_str().unwrap();
    near(&embed(&["--embd-normalize", "-1", "-f", path]), &rows);
    let encoder = encoder();
    let args = ["embed", "-b", "cpu", "-m", &encoder, "--normalize", "-1"];
    near(
        &run_with_input(&args, texts.join("\n").as_bytes()).json(),
        &rows,
    );
}

pub(crate) fn vectors_are_scaled() {
    let of = |n: &str| numbers(&embed(&["--normalize", n, "cats"]));
    let plain = of("-1");
    for (n, p) in [("1", 1.0), ("2", 2.0), ("3", 3.0)] {
        let size: f64 = plain
            .iter()
            .map(|x| x.abs().powf(p))
            .sum::<f64>()
            .powf(1.0 / p);
        for (a, b) in of(n).iter().zip(&plain) {
            assert!((a - b / size).abs() < 1e-5, "{n}");
        }
    }
    let largest = of("0").iter().fold(0.0_f64, |most, x| most.max(x.abs()));
    assert!((largest - 32_760.0).abs() < 0.1, "{largest}");
}

pub(crate) fn vectors_go_to_files() {
    let (encoder, out) = (encoder(), tempfile::tempdir().unwrap());
    let path = |name: &str| out.path().join(name).display().to_string();
    let rows = embed(&["cats", "The cat sat on the mat."]);
    for name in ["v.npy", "v.safetensors"] {
        let path = path(name);
        let args = ["embed", "-b", "cpu", "-m", &encoder, "-o", &path, "cats"];
        run([&args[..], &["The cat sat on the mat."]].concat()).ok();
    }
    let of_npy = rustorch_files::npy::load(path("v.npy")).unwrap();
    let tensors = rustorch_files::safetensors::load(path("v.safetensors")).unwrap();
    for tensor in [&of_npy, tensors.get("embeddings").unwrap()] {
        assert_eq!(tensor.shape(), [2, 32]);
        near(&json!(tensor.to_vec::<f32>().unwrap()), &rows);
    }
}

pub(crate) fn similarity_is_the_cosine() {
    let rows = embed(&["cats", "The cat sat."]);
    let (a, b) = (numbers(&rows[0]), numbers(&rows[1]));
    let cosine: f64 = a.iter().zip(&b).map(|(a, b)| a * b).sum();
    let found = embed(&["--similarity", "--normalize", "-1", "cats", "The cat sat."]);
    near(&found, &json!([[1.0, cosine], [cosine, 1.0]]));
}

pub(crate) fn tokens_have_vectors() {
    let rows = embed(&[
        "--pooling",
        "none",
        "--normalize",
        "-1",
        "cats",
        "The cat sat.",
    ]);
    let first = rows[0].as_array().unwrap();
    let cls = embed(&["--pooling", "cls", "--normalize", "-1", "cats"]);
    near(&first[0], &cls[0]);
    assert!(rows[1].as_array().unwrap().len() > first.len());
    assert_eq!(first[0].as_array().unwrap().len(), 32);
}

pub(crate) fn documents_have_scores() {
    for name in ["bert-ranker", "roberta-ranker"] {
        let ((texts, rows), model) = (expected(name), folder(name).display().to_string());
        let args = ["rerank", "-b", "cpu", "-m", &model, "-p", &texts[3]];
        let documents: Vec<&str> = texts.iter().map(String::as_str).collect();
        near(&run([&args[..], &documents].concat()).json(), &rows);
        near(
            &run_with_input(&args, documents.join("\n").as_bytes()).json(),
            &rows,
        );
    }
}

pub(crate) fn requests_that_make_no_sense() {
    let encoder = encoder();
    let refused = |args: &[&str], status: i32, part: &str| {
        let line = run([args, &["-b", "cpu", "-m", &encoder]].concat()).error(status);
        assert!(line.contains(part), "no {part:?} in: {line}");
    };
    for command in [
        &["-p", "x"][..],
        &["chat", "-p", "x"],
        &["logits", "--ids", "1"],
    ] {
        refused(command, 1, "`rustorch-cli embed`");
    }
    refused(
        &["embed", "--pooling", "rank", "x"],
        1,
        "the model has no classifier",
    );
    refused(
        &["rerank", "-p", "x", "y"],
        1,
        "the model has no classifier",
    );
    refused(
        &["embed", "--pooling", "none", "--similarity", "x"],
        2,
        "another --pooling",
    );
    refused(
        &["embed", "--pooling", "max", "x"],
        2,
        "none, mean, cls, last, rank",
    );
    refused(&["embed", "-f", "/no/such.txt"], 1, "/no/such.txt");
    refused(&["embed", "-o", "/no/such/v.npy", "x"], 1, "/no/such/v.npy");
}

/// A decoder has vectors, too.
pub(crate) fn the_bundled_model_embeds() {
    let rows = run(["embed", "-b", "cpu", "A cat", "A whale"]).json();
    let sizes = [0, 1].map(|i| numbers(&rows[i]).iter().map(|x| x * x).sum::<f64>());
    assert!(
        sizes.iter().all(|size| (size - 1.0).abs() < 1e-4),
        "{sizes:?}"
    );
}
