//! A device that fails in the middle of a generation: the text does not change.

use std::sync::Arc;

use rustorch_conformance::Extent;
use rustorch_cpu::Cpu;
use rustorch_faulty::{Fault, FaultKind, Faulty, When};
use rustorch_llm::golden::largest;
use rustorch_llm::{Model, Session, SessionOptions};
use rustorch_runtime::{Backend, DeviceType, Runtime};

use crate::common::{self, Devices, gpus, load};

const PROMPT: [u32; 5] = [0, 48, 1299, 602, 260];
const TOKENS: usize = 3;

fn faulty(inner: &Arc<dyn Backend>, n: u64, kind: FaultKind) -> Arc<Faulty> {
    let fault = Fault {
        device: inner.info().device,
        op: None,
        when: When::Nth(n),
        kind,
    };
    Arc::new(Faulty::new(inner.clone(), [fault]))
}

/// Greedy tokens, and the launches of the first device after each.
fn generate(model: &Model, first: &Arc<Faulty>) -> (Vec<u32>, Vec<u64>, Runtime) {
    let backends: [Arc<dyn Backend>; 2] = [first.clone(), Arc::new(Cpu::new(1))];
    let options = SessionOptions {
        context: 32,
        routing: common::first(&backends[0]),
        ..SessionOptions::default()
    };
    let runtime = Runtime::new(backends);
    let mut session = Session::new(model, &runtime, options).unwrap();
    let (mut logits, mut launches) = (Vec::new(), Vec::new());
    session.feed(&PROMPT, &mut logits).unwrap();
    launches.push(first.launches());
    for _ in 0..TOKENS {
        let token = largest(&logits);
        session.feed(&[token], &mut logits).unwrap();
        launches.push(first.launches());
    }
    (session.tokens().to_vec(), launches, runtime)
}

fn cpu() -> Arc<dyn Backend> {
    Arc::new(Cpu::new(1))
}

/// Each kind of fault at each of these launches of a generation.
fn every_fault(inner: &Arc<dyn Backend>, model: &Model, step: impl Iterator<Item = u64> + Clone) {
    let (expected, ..) = generate(model, &faulty(inner, u64::MAX, FaultKind::Lost));
    for kind in FaultKind::FAILURES {
        for n in step.clone() {
            let first = faulty(inner, n, kind);
            let (tokens, _, runtime) = generate(model, &first);
            let what = format!("{} at launch {n}", kind.name());
            assert_eq!(tokens, expected, "{what}");
            let fallbacks = runtime.fallbacks();
            assert_eq!(fallbacks.len(), 1, "{what}");
            assert_eq!(fallbacks[0].error.device, inner.info().device, "{what}");
            assert!(fallbacks[0].to.is_some(), "{what}");
        }
    }
}

/// Q8_0, of which a prompt and single tokens give the same choices here: a second device is fed
/// the tokens so far as a prompt, whose sums are rounded elsewhere.
pub(crate) fn every_fault_at_every_kernel_of_a_decode_step() {
    let (model, cpu) = (load("Q8_0"), cpu());
    let (_, launches, runtime) = generate(&model, &faulty(&cpu, u64::MAX, FaultKind::Lost));
    assert!(runtime.fallbacks().is_empty());
    // The second decode step: its program has been used before, its cache holds a history.
    let step = launches[1] + 1..=launches[2];
    assert!(step.clone().count() > 6 * 8, "{launches:?}");
    every_fault(&cpu, &model, step);
}

/// Q8_0, of which OpenCL and the CPU choose the same tokens here.
pub(crate) fn every_fault_of_an_opencl_device_at_every_kernel_of_every_token(opencl: &Devices) {
    for device in opencl {
        let model = load("Q8_0");
        let (_, launches, runtime) = generate(&model, &faulty(device, u64::MAX, FaultKind::Lost));
        assert!(runtime.fallbacks().is_empty());
        let tried = Extent::of_tests().choose(1..=launches[TOKENS], 12);
        every_fault(device, &model, tried.into_iter());
    }
}

/// At some kernels: an emulated device is slow.
pub(crate) fn every_fault_of_a_metal_device(metal: &Devices) {
    for device in metal {
        let model = load("Q8_0");
        let (_, launches, runtime) = generate(&model, &faulty(device, u64::MAX, FaultKind::Lost));
        assert!(runtime.fallbacks().is_empty());
        every_fault(device, &model, (1..=launches[TOKENS]).step_by(37));
    }
}

pub(crate) fn a_lost_device_is_avoided_by_later_runs() {
    for device in [cpu()].into_iter().chain(gpus()) {
        let model = load("Q8_0");
        let first = faulty(&device, 1, FaultKind::Lost);
        let (_, launches, runtime) = generate(&model, &first);
        assert_eq!(launches, [1; TOKENS + 1]);
        assert_eq!(runtime.fallbacks().len(), 1);
    }
}

pub(crate) fn a_lost_prompt_is_fed_again() {
    let (model, cpu) = (load("Q4_K_M"), cpu());
    let (expected, launches, _) = generate(&model, &faulty(&cpu, u64::MAX, FaultKind::Lost));
    let first = faulty(&cpu, launches[0] / 2, FaultKind::Timeout);
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
