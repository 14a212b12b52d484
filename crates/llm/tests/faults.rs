//! A device that fails in the middle of a generation: the text does not change.

use std::path::Path;
use std::sync::Arc;

use rustorch_cpu::Cpu;
use rustorch_faulty::{Fault, FaultKind, Faulty, When};
use rustorch_gguf::Gguf;
use rustorch_llm::{Model, Session, SessionOptions};
use rustorch_runtime::{Backend, DeviceType, Runtime};

const PROMPT: [u32; 5] = [0, 48, 1299, 602, 260];
const TOKENS: usize = 3;

fn model() -> Model {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/classics-13m-Q4_K_M.gguf");
    Model::load(Gguf::open(path).unwrap()).unwrap()
}

fn faulty(n: u64, kind: FaultKind) -> Arc<Faulty> {
    let fault = Fault {
        device: DeviceType::Cpu,
        op: None,
        when: When::Nth(n),
        kind,
    };
    Arc::new(Faulty::new(Arc::new(Cpu::new(1)), [fault]))
}

/// Greedy tokens, and the launches of the first device after each.
fn generate(model: &Model, first: &Arc<Faulty>) -> (Vec<u32>, Vec<u64>, Runtime) {
    let backends: [Arc<dyn Backend>; 2] = [first.clone(), Arc::new(Cpu::new(1))];
    let runtime = Runtime::new(backends);
    let options = SessionOptions {
        context: 32,
        ..SessionOptions::default()
    };
    let mut session = Session::new(model, &runtime, options).unwrap();
    let (mut logits, mut launches) = (Vec::new(), Vec::new());
    session.feed(&PROMPT, &mut logits).unwrap();
    launches.push(first.launches());
    for _ in 0..TOKENS {
        let best = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
        let token = best.unwrap().0 as u32;
        session.feed(&[token], &mut logits).unwrap();
        launches.push(first.launches());
    }
    (session.tokens().to_vec(), launches, runtime)
}

#[test]
fn every_fault_at_every_kernel_of_a_decode_step() {
    let model = model();
    let (expected, launches, runtime) = generate(&model, &faulty(u64::MAX, FaultKind::Lost));
    assert!(runtime.fallbacks().is_empty());
    // The second decode step: its program has been used before, its cache holds a history.
    let step = launches[1] + 1..=launches[2];
    assert!(step.clone().count() > 6 * 15, "{launches:?}");
    for kind in FaultKind::ALL {
        for n in step.clone() {
            let first = faulty(n, kind);
            let (tokens, _, runtime) = generate(&model, &first);
            assert_eq!(tokens, expected, "{} at launch {n}", kind.name());
            assert_eq!(
                runtime.fallbacks().len(),
                1,
                "{} at launch {n}",
                kind.name()
            );
        }
    }
}

#[test]
fn a_lost_prompt_is_fed_again() {
    let model = model();
    let (expected, launches, _) = generate(&model, &faulty(u64::MAX, FaultKind::Lost));
    let first = faulty(launches[0] / 2, FaultKind::Timeout);
    let (tokens, _, runtime) = generate(&model, &first);
    assert_eq!(tokens, expected);
    let used: Vec<DeviceType> = runtime.used_devices().into_iter().map(|d| d.0).collect();
    assert_eq!(
        used,
        [DeviceType::Cpu],
        "only the second device finished anything"
    );
    let fallback = runtime.fallbacks()[0].to_string();
    assert!(fallback.contains("no answer in time"), "{fallback}");
    assert!(fallback.ends_with("now on cpu"), "{fallback}");
}
