//! The bundled model in five types against llama.cpp's tokens, logits and perplexity.
//!
//! `models/goldens` was made by llama.cpp 0.5.0: for each prompt its tokens, then 48 greedy
//! steps with their five largest logits.

use std::path::Path;
use std::sync::Arc;

use rustorch_conformance::Extent;
use rustorch_cpu::Cpu;
use rustorch_llm::golden::{Agreement, Bounds, Golden, largest};
use rustorch_llm::{LlmError, Model, Session, SessionOptions, perplexity};
use rustorch_runtime::{Backend, DeviceType, Runtime};
use rustorch_tokenizer::EncodeOptions;

use crate::common::{Devices, goldens, load, models};

/// Tokens and logits against the goldens.
fn check_goldens(runtime: &Runtime, name: &str) {
    let on_cpu = runtime.devices().any(|d| d.device == DeviceType::Cpu);
    let bounds = Bounds::of(name.parse().unwrap(), on_cpu);
    let equal = equal_tokens(runtime, &load(name), &goldens(name), &bounds);
    assert!(equal > 20, "{name}: only {equal} tokens could be compared");
}

/// The steps whose token had to be llama.cpp's, and is; logits are within the bounds.
pub(crate) fn equal_tokens(
    runtime: &Runtime,
    model: &Model,
    goldens: &[Golden],
    bounds: &Bounds,
) -> usize {
    let options = SessionOptions {
        context: 512,
        ..SessionOptions::default()
    };
    let mut session = Session::new(model, runtime, options).unwrap();
    let agreement = Agreement::measure(&mut session, goldens, bounds).unwrap();
    let Agreement {
        equal, mean, worst, ..
    } = agreement;
    println!("{equal} tokens equal; logits differ by {mean:.4}, at most {worst:.4}");
    assert_eq!(agreement.problem(bounds), None);
    equal
}

/// Perplexity of the first 20 chunks within 0.3 % of llama.cpp's.
fn check_perplexity(runtime: &Runtime, name: &str, expected: f64) {
    let text = models().join("classics-eval.txt");
    let value = perplexity_of(runtime, &load(name), &text, 512, 20);
    println!("{name}: perplexity {value:.4}, llama.cpp {expected:.4}");
    assert!(
        (value / expected - 1.0).abs() < 0.003,
        "{name}: {value} instead of {expected}"
    );
}

/// Perplexity of the first `chunks` pieces of a text, each of `context` tokens.
pub(crate) fn perplexity_of(
    runtime: &Runtime,
    model: &Model,
    text: &Path,
    context: usize,
    chunks: usize,
) -> f64 {
    let text = std::fs::read_to_string(text).unwrap();
    let tokenizer = model.tokenizer().unwrap();
    let options = EncodeOptions {
        add_special: true,
        parse_special: false,
    };
    let tokens = tokenizer.encode(&text, options);
    let options = SessionOptions {
        context,
        ..SessionOptions::default()
    };
    let mut session = Session::new(model, runtime, options).unwrap();
    let result = perplexity(&mut session, &tokens, tokenizer.bos(), Some(chunks), |_| ()).unwrap();
    assert_eq!(result.chunks, chunks);
    result.value
}

/// All 48 tokens of every prompt: with f16 weights, near-ties are decided the same way.
fn check_all_tokens(runtime: &Runtime) {
    let model = load("f16");
    let mut session = Session::new(&model, runtime, SessionOptions::default()).unwrap();
    for golden in goldens("f16") {
        session.truncate(0);
        let mut logits = Vec::new();
        session.feed(&golden.ids, &mut logits).unwrap();
        for (i, step) in golden.steps.iter().enumerate() {
            let chosen = largest(&logits);
            assert_eq!(chosen, step.id, "{:?} step {i}", golden.prompt);
            session.feed(&[chosen], &mut logits).unwrap();
        }
    }
}

/// A device on its own, that nothing can stand in for.
pub(crate) fn alone(backend: Arc<dyn Backend>) -> Runtime {
    Runtime::new([backend])
}

pub(crate) fn cpu() -> Runtime {
    alone(Arc::new(Cpu::new(0)))
}

fn f16(runtime: &Runtime) {
    check_all_tokens(runtime);
    check_goldens(runtime, "f16");
    check_perplexity(runtime, "f16", 21.2514);
}

fn q8_0(runtime: &Runtime) {
    check_goldens(runtime, "Q8_0");
    check_perplexity(runtime, "Q8_0", 21.2571);
}

fn q6_k(runtime: &Runtime) {
    check_goldens(runtime, "Q6_K");
    check_perplexity(runtime, "Q6_K", 21.3654);
}

fn q5_k_m(runtime: &Runtime) {
    check_goldens(runtime, "Q5_K_M");
    check_perplexity(runtime, "Q5_K_M", 21.4312);
}

fn q4_k_m(runtime: &Runtime) {
    check_goldens(runtime, "Q4_K_M");
    check_perplexity(runtime, "Q4_K_M", 21.8918);
}

pub(crate) mod on_the_cpu {
    macro_rules! tests {
        ($($name:ident),+) => {$(
            pub(crate) fn $name() {
                super::$name(&super::cpu());
            }
        )+};
    }
    tests!(f16, q8_0, q6_k, q5_k_m, q4_k_m);
}

/// A test of a device.
type Trial = fn(&Runtime);

/// The types: their names, and what is checked on devices that are fast enough.
const TYPES: [(&str, Trial); 5] = [
    ("f16", f16),
    ("Q8_0", q8_0),
    ("Q6_K", q6_k),
    ("Q5_K_M", q5_k_m),
    ("Q4_K_M", q4_k_m),
];

pub(crate) fn on_opencl(opencl: &Devices) {
    for device in opencl {
        for (_, check) in Extent::of_tests().choose(TYPES, 2) {
            check(&alone(device.clone()));
        }
    }
}

/// Without perplexity: an emulated device is slow.
pub(crate) fn on_emulated_metal(metal: &Devices) {
    for device in metal {
        for (name, _) in Extent::of_tests().choose(TYPES, 2) {
            check_goldens(&alone(device.clone()), name);
        }
    }
}

pub(crate) fn a_full_context_is_refused() {
    let model = load("Q4_K_M");
    let options = SessionOptions {
        context: 8,
        ..SessionOptions::default()
    };
    let mut session = Session::new(&model, &cpu(), options).unwrap();
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
        "token id 4096 is outside the vocabulary of 4096 tokens"
    );
}
