//! Recurrent states are those of a session's tokens alone, whatever happened before.

use std::sync::Arc;

use rustorch_conformance::Extent;
use rustorch_cpu::Cpu;
use rustorch_faulty::{Fault, FaultKind, Faulty, When};
use rustorch_llm::{LlmError, MemoryNeeds, Model, Session};
use rustorch_runtime::{Backend, DeviceType, Runtime};
use rustorch_testing::models::Header;
use rustorch_testing::random::Random;

use crate::common::{cpu, difference, feed, headers, load, none_of, options};
use crate::feeding::NEAR;

/// Steps of a session's history.
const STEPS: usize = 16;

/// Tokens of the longest text.
const LONGEST: usize = 60;

fn has_states(model: &Model) -> bool {
    let mut layers = model.spec().layers.iter();
    layers.any(|layer| !layer.recurrent_states().is_empty())
}

fn recurrent() -> Vec<Header> {
    let headers = headers().into_iter();
    let found: Vec<_> = headers.filter(|h| has_states(&load(h).unwrap())).collect();
    assert!(found.len() >= 10, "{}", found.len());
    found
}

/// Logits of a text's last token, in a session of its own.
fn anew(model: &Model, text: &[u32]) -> Result<Vec<f32>, LlmError> {
    let runtime = cpu();
    let mut session = Session::new(model, &runtime, options())?;
    let mut logits = Vec::new();
    session.feed(text, &mut logits)?;
    Ok(logits)
}

/// The largest difference of a session's logits from those of its tokens alone. The session feeds, drops, saves and
/// restores tokens at random.
fn strayed(model: &Model, runtime: &Runtime, seed: u64) -> Result<f32, LlmError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("session.gguf");
    let mut random = Random::new(seed);
    let mut session = Session::new(model, runtime, options())?;
    let mut most = 0.0_f32;
    for _ in 0..STEPS {
        let length = session.tokens().len();
        match random.below(5) {
            // A few tokens, as after drafts, or many.
            0 => session.truncate(length.saturating_sub(random.below(4))),
            1 => session.truncate(random.below(length + 1)),
            2 => {
                session.save(&path)?;
                session = Session::new(model, runtime, options())?;
                feed(&mut session, &[1; 5], &mut Vec::new())?;
                assert_eq!(session.restore(&path)?, length);
            }
            _ => {}
        }
        let room = LONGEST - session.tokens().len();
        if room == 0 {
            session.truncate(3);
            continue;
        }
        let count = 1 + random.below(room.min(9));
        let more: Vec<u32> = (0..count).map(|_| random.below(61) as u32).collect();
        let mut logits = Vec::new();
        session.feed(&more, &mut logits)?;
        most = most.max(difference(&logits, &anew(model, session.tokens())?));
    }
    Ok(most)
}

fn check(headers: &[Header], runtime: impl Fn() -> Runtime) {
    let problems = headers.iter().enumerate().filter_map(|(seed, header)| {
        let model = load(header).unwrap();
        let name = &header.name;
        match strayed(&model, &runtime(), seed as u64) {
            Ok(most) => (most > NEAR).then(|| format!("{name}: differs by {most:.1e}")),
            Err(error) => Some(format!("{name}: {error}")),
        }
    });
    none_of(&problems.collect::<Vec<_>>());
}

pub(crate) fn after_any_history() {
    check(&recurrent(), cpu);
}

/// A device is lost in the middle of such a history; another one goes on.
pub(crate) fn after_a_loss() {
    let headers = Extent::of_tests().choose(recurrent(), 4);
    for nth in [40, 333] {
        check(&headers, || {
            let fault = Fault {
                device: DeviceType::Cpu,
                op: None,
                when: When::Nth(nth),
                kind: FaultKind::Lost,
            };
            let faulty = Arc::new(Faulty::new(Arc::new(Cpu::new(1)), [fault]));
            Runtime::new([faulty as Arc<dyn Backend>, Arc::new(Cpu::new(1))])
        });
    }
}

/// The memory of states does not grow with the context.
pub(crate) fn states_are_counted() {
    for header in recurrent() {
        let model = load(&header).unwrap();
        let session = Session::new(&model, &cpu(), options()).unwrap();
        let needs = MemoryNeeds::new(&model, &options()).unwrap();
        assert_eq!(session.cache_bytes() as u64, needs.cache, "{}", header.name);
        let states = model
            .spec()
            .layers
            .iter()
            .map(|layer| layer.recurrent_bytes());
        let states: usize = states.sum();
        assert!(states > 0 && needs.cache >= states as u64);
        let mut twice = options();
        twice.context *= 2;
        let more = MemoryNeeds::new(&model, &twice).unwrap();
        assert_eq!(more.cache - needs.cache, needs.cache - states as u64);
    }
}
