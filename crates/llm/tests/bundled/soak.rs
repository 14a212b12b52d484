//! Generation on devices that fail at random, text after text: every text is right, and
//! memory does not grow.
//!
//! A few texts of it belong to the tests; `RUSTORCH_SOAK_MINUTES=30` makes it a soak.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustorch_cpu::Cpu;
use rustorch_faulty::{Fault, FaultKind, Faulty, When};
use rustorch_llm::golden::largest;
use rustorch_llm::{Session, SessionOptions};
use rustorch_runtime::{Backend, Runtime};

use crate::common;

const TOKENS: usize = 24;

/// Bytes of the process in memory; `None` where the system does not tell.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// The `round`-th device that fails at one launch in a hundred.
fn failing(inner: &Arc<dyn Backend>, round: u64) -> Arc<dyn Backend> {
    let fault = Fault {
        device: inner.info().device,
        op: None,
        when: When::Probability {
            p: 0.01,
            seed: round,
        },
        kind: FaultKind::FAILURES[round as usize % FaultKind::FAILURES.len()],
    };
    Arc::new(Faulty::new(inner.clone(), [fault]))
}

/// Greedy tokens after a prompt, on devices in their order.
fn generate(backends: Vec<Arc<dyn Backend>>) -> (Vec<u32>, usize) {
    let model = common::load("Q8_0");
    let options = SessionOptions {
        context: 64,
        routing: common::first(&backends[0]),
        ..SessionOptions::default()
    };
    let runtime = Runtime::new(backends);
    let mut session = Session::new(&model, &runtime, options).unwrap();
    let prompt = &common::goldens("Q8_0")[0].ids;
    let mut logits = Vec::new();
    session.feed(prompt, &mut logits).unwrap();
    for _ in 0..TOKENS {
        let token = largest(&logits);
        session.feed(&[token], &mut logits).unwrap();
    }
    (session.tokens().to_vec(), runtime.fallbacks().len())
}

/// Texts of an ordinary run, which looks at no clock.
const ROUNDS: u64 = 24;

pub(crate) fn every_text_is_right() {
    let minutes = std::env::var("RUSTORCH_SOAK_MINUTES").ok();
    let end = minutes.map(|minutes| {
        let minutes: f64 = minutes.parse().unwrap();
        Instant::now() + Duration::from_secs_f64(60.0 * minutes)
    });
    let mut devices = common::find_opencl().unwrap_or_default();
    devices.push(Arc::new(Cpu::new(2)));
    let (expected, _) = generate(devices.clone());
    let (mut round, mut faults, mut resident) = (0, 0, Vec::new());
    while end.map_or(round < ROUNDS, |end| Instant::now() < end) {
        let mut chain: Vec<_> = devices.iter().map(|d| failing(d, round)).collect();
        // The end of the chain does not fail.
        chain.push(Arc::new(Cpu::new(2)));
        let (tokens, fallbacks) = generate(chain);
        assert_eq!(tokens, expected, "round {round}");
        faults += fallbacks;
        round += 1;
        resident.extend(resident_bytes());
    }
    assert!(faults > 0, "nothing failed in {round} rounds");
    println!("{round} texts, {faults} faults, every text right");
    // The first quarter fills the caches.
    if resident.len() >= 40 {
        let quarter = resident.len() / 4;
        let (early, late) = (
            median(&resident[quarter..2 * quarter]),
            median(&resident[3 * quarter..]),
        );
        println!("resident: {} MiB, then {} MiB", early >> 20, late >> 20);
        assert!(late < early + early / 10, "{early} bytes, then {late}");
    }
}

fn median(values: &[u64]) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted[sorted.len() / 2]
}
