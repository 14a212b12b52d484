//! The bundled model in five types against llama.cpp's tokens, logits and perplexity.
//!
//! `models/goldens` was made by llama.cpp 0.5.0: for each prompt its tokens, then 48 greedy
//! steps with their five largest logits. Tokens and logits are compared at every step, with
//! llama.cpp's tokens fed; where its own two best are nearer than its rounding noise, either
//! may win.
//!
//! With K formats llama.cpp rounds activations to 8 bits with one scale for 256. A sum in
//! another order tips some of them to the next step, which tips more in the next layer, so
//! the noise is as large between two settings of llama.cpp itself. On these prompts, one
//! prompt at a time against token by token, its logits differ by up to 0.27 (Q4_K_M), 0.32
//! (Q5_K_M), 0.25 (Q6_K), with and without its repacked kernels by up to 0.34 (Q4_K_M).

use std::path::{Path, PathBuf};

use rustorch_gguf::Gguf;
use rustorch_llm::quantize::{FileType, QuantizeOptions, quantize};
use rustorch_llm::{LlmError, Model, Session, SessionOptions, perplexity};
use rustorch_tensor::runtime;
use rustorch_tokenizer::EncodeOptions;
use serde::Deserialize;

/// How far logits may be from llama.cpp's.
struct Bounds {
    /// Two logits nearer than this may change places.
    near: f32,
    /// The largest difference.
    worst: f32,
    /// The mean difference.
    mean: f32,
}

const F16: Bounds = Bounds {
    near: 0.05,
    worst: 0.03,
    mean: 0.003,
};

const Q8_0: Bounds = Bounds {
    near: 0.05,
    worst: 0.15,
    mean: 0.03,
};

/// llama.cpp against itself: up to 0.34, in the mean 0.046 to 0.068.
const K_FORMATS: Bounds = Bounds {
    near: 0.35,
    worst: 0.4,
    mean: 0.075,
};

#[derive(Deserialize)]
struct Golden {
    prompt: String,
    ids: Vec<u32>,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Step {
    id: u32,
    top: Vec<(u32, f32)>,
}

fn models() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models")
}

fn goldens(name: &str) -> Vec<Golden> {
    let path = models().join(format!("goldens/classics-13m-{name}.jsonl"));
    let text = std::fs::read_to_string(path).unwrap();
    text.lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect()
}

/// The model in a type: as it lies in the repository, or quantised from the f16 file.
fn load(name: &str) -> Model {
    let shipped = models().join(format!("classics-13m-{name}.gguf"));
    if shipped.exists() {
        return Model::load(Gguf::open(shipped).unwrap()).unwrap();
    }
    let source = Gguf::open(models().join("classics-13m-f16.gguf")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    let file_type: FileType = name.parse().unwrap();
    quantize(
        &source,
        &path,
        file_type,
        &QuantizeOptions::default(),
        &mut |_| (),
    )
    .unwrap();
    Model::load(Gguf::from_bytes(std::fs::read(path).unwrap()).unwrap()).unwrap()
}

fn argmax(logits: &[f32]) -> u32 {
    let best = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
    best.unwrap().0 as u32
}

/// Tokens and logits against the goldens.
fn check_goldens(name: &str, bounds: &Bounds) {
    let model = load(name);
    let mut session = Session::new(&model, &runtime(), SessionOptions::default()).unwrap();
    let mut compared = 0;
    let mut differences: Vec<f32> = Vec::new();
    for golden in goldens(name) {
        let options = EncodeOptions {
            add_special: true,
            parse_special: false,
        };
        let ids = model.tokenizer().unwrap().encode(&golden.prompt, options);
        assert_eq!(ids, golden.ids, "{name}: {:?}", golden.prompt);
        session.truncate(0);
        let mut logits = Vec::new();
        session.feed(&ids, &mut logits).unwrap();
        for (i, step) in golden.steps.iter().enumerate() {
            if step.top[0].1 - step.top[1].1 >= bounds.near {
                let chosen = argmax(&logits);
                assert_eq!(chosen, step.id, "{name}: {:?} step {i}", golden.prompt);
                compared += 1;
            }
            let difference = |&(id, expected): &(u32, f32)| (logits[id as usize] - expected).abs();
            differences.extend(step.top.iter().map(difference));
            session.feed(&[step.id], &mut logits).unwrap();
        }
    }
    let worst = differences.iter().copied().fold(0.0, f32::max);
    let mean = differences.iter().sum::<f32>() / differences.len() as f32;
    println!("{name}: {compared} tokens equal; logits differ by {mean:.4}, at most {worst:.4}");
    assert!(
        compared > 20,
        "{name}: only {compared} tokens could be compared"
    );
    assert!(worst <= bounds.worst, "{name}: a logit differs by {worst}");
    assert!(
        mean <= bounds.mean,
        "{name}: logits differ by {mean} in the mean"
    );
}

/// Perplexity of the first 20 chunks within 0.3 % of llama.cpp's.
fn check_perplexity(name: &str, expected: f64) {
    let model = load(name);
    let text = std::fs::read_to_string(models().join("classics-eval.txt")).unwrap();
    let tokenizer = model.tokenizer().unwrap();
    let options = EncodeOptions {
        add_special: true,
        parse_special: false,
    };
    let tokens = tokenizer.encode(&text, options);
    let options = SessionOptions {
        context: 512,
        ..SessionOptions::default()
    };
    let mut session = Session::new(&model, &runtime(), options).unwrap();
    let result = perplexity(&mut session, &tokens, tokenizer.bos(), Some(20), |_| ()).unwrap();
    println!(
        "{name}: perplexity {:.4}, llama.cpp {expected:.4}",
        result.value
    );
    assert_eq!(result.chunks, 20);
    let ratio = result.value / expected;
    assert!(
        (ratio - 1.0).abs() < 0.003,
        "{name}: {} instead of {expected}",
        result.value
    );
}

/// All 48 tokens of every prompt: with f16 weights, near-ties are decided the same way.
#[test]
fn f16_all_tokens() {
    let model = load("f16");
    let mut session = Session::new(&model, &runtime(), SessionOptions::default()).unwrap();
    for golden in goldens("f16") {
        session.truncate(0);
        let mut logits = Vec::new();
        session.feed(&golden.ids, &mut logits).unwrap();
        for (i, step) in golden.steps.iter().enumerate() {
            let chosen = argmax(&logits);
            assert_eq!(chosen, step.id, "{:?} step {i}", golden.prompt);
            session.feed(&[chosen], &mut logits).unwrap();
        }
    }
}

#[test]
fn f16() {
    check_goldens("f16", &F16);
    check_perplexity("f16", 21.2514);
}

#[test]
fn q8_0() {
    check_goldens("Q8_0", &Q8_0);
    check_perplexity("Q8_0", 21.2571);
}

#[test]
fn q6_k() {
    check_goldens("Q6_K", &K_FORMATS);
    check_perplexity("Q6_K", 21.3654);
}

#[test]
fn q5_k_m() {
    check_goldens("Q5_K_M", &K_FORMATS);
    check_perplexity("Q5_K_M", 21.4312);
}

#[test]
fn q4_k_m() {
    check_goldens("Q4_K_M", &K_FORMATS);
    check_perplexity("Q4_K_M", 21.8918);
}

#[test]
fn a_full_context_is_refused() {
    let model = load("Q4_K_M");
    let options = SessionOptions {
        context: 8,
        ..SessionOptions::default()
    };
    let mut session = Session::new(&model, &runtime(), options).unwrap();
    let mut logits = Vec::new();
    session.feed(&[1; 6], &mut logits).unwrap();
    let error = session.feed(&[1; 3], &mut logits).unwrap_err();
    assert!(
        matches!(
            error,
            LlmError::ContextFull {
                have: 6,
                more: 3,
                size: 8,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(session.tokens().len(), 6);
    let error = session.feed(&[4096], &mut logits).unwrap_err();
    assert_eq!(
        error.to_string(),
        "token 4096 is outside the vocabulary of 4096"
    );
}
