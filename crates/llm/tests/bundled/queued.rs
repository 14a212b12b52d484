//! A device that works behind the caller's back: sessions run ahead of what they have read.

use std::ops::ControlFlow;
use std::sync::Arc;

use rustorch_cpu::Cpu;
use rustorch_faulty::{Fault, FaultKind, Faulty, When};
use rustorch_llm::sampler::{SamplerChain, SamplerConfig};
use rustorch_llm::{
    GenerateOptions, LlmError, Model, Scores, Selection, Session, SessionOptions,
    generate as generate_text,
};
use rustorch_runtime::{Backend, DeviceType, Runtime};
use rustorch_testing::queued::Queued;

use crate::common::load;

const PROMPT: [u32; 5] = [0, 48, 1299, 602, 260];
const TOKENS: usize = 10;

fn cpu() -> Arc<dyn Backend> {
    Arc::new(Cpu::new(1))
}

fn options() -> SessionOptions {
    SessionOptions {
        context: PROMPT.len() + TOKENS,
        ..SessionOptions::default()
    }
}

/// The best tokens one after the other, and the segments that the first device ran.
fn generate(model: &Model, first: Arc<dyn Backend>) -> (Vec<u32>, u64, Runtime) {
    let device = first.info().device;
    let runtime = Runtime::new([first, cpu()]);
    let mut session = Session::new(model, &runtime, options()).unwrap();
    let mut scores = Scores::default();
    let mut fed = PROMPT.to_vec();
    for _ in 0..=TOKENS {
        let best = Selection::best();
        session.feed_and_select(&fed, &best, &mut scores).unwrap();
        fed.clone_from(scores.ids.as_ref().unwrap());
    }
    let used = runtime.used_devices();
    let runs = used.iter().find(|(d, _)| *d == device).map_or(0, |u| u.1);
    (session.tokens().to_vec(), runs, runtime)
}

fn fault(device: DeviceType, nth: u64, kind: FaultKind) -> Fault {
    let (op, when) = (None, When::Nth(nth));
    Fault {
        device,
        op,
        when,
        kind,
    }
}

pub(crate) fn a_device_that_runs_ahead_tells_the_same_and_no_further_than_the_context() {
    let model = load("Q4_K_M");
    let (expected, ..) = generate(&model, cpu());
    let (told, runs, runtime) = generate(&model, Queued::over(cpu()));
    assert_eq!(told, expected);
    assert!(runtime.fallbacks().is_empty());
    // The context is full: no pass was begun that nobody asked for.
    assert_eq!(runs, 1 + TOKENS as u64);
}

/// Only the last batch of a prompt chooses a token to continue with.
pub(crate) fn generating_begins_one_pass_for_nothing() {
    let model = load("Q4_K_M");
    let greedy = SamplerConfig::default().temperature(0.0);
    let limit = GenerateOptions {
        max_tokens: Some(4),
        ignore_end: false,
        shift: None,
    };
    let tell = |backend: Arc<dyn Backend>| {
        let runtime = Runtime::new([backend]);
        let options = SessionOptions {
            batch: 2,
            ..options()
        };
        let mut session = Session::new(&model, &runtime, options).unwrap();
        let mut sampler = SamplerChain::new(&greedy).unwrap();
        let on_event = |_| Ok::<_, LlmError>(ControlFlow::Continue(()));
        let told = generate_text(&mut session, &PROMPT, &mut sampler, &limit, on_event);
        (
            told.unwrap().ids,
            session.tokens().to_vec(),
            runtime.used_devices()[0].1,
        )
    };
    let (ids, tokens, passes) = tell(cpu());
    assert_eq!((ids.len(), tokens.len(), passes), (4, 5 + 3, 3 + 3));
    assert_eq!(tell(Queued::over(cpu())), (ids, tokens, passes + 1));
}

/// Weights and cache are where they are needed before the first token.
pub(crate) fn loading_copies_all_that_stays() {
    let model = load("Q4_K_M");
    let device = DeviceType::Cuda(0);
    let runtime = Runtime::new([Queued::over(cpu())]);
    let mut session = Session::new(&model, &runtime, options()).unwrap();
    let (mut done, mut total) = (0, 0);
    let best = Selection::best();
    let progress = |now, all| {
        assert!(now > done && now <= all);
        (done, total) = (now, all);
    };
    session.load(&best, progress).unwrap();
    let weights = model.gguf().tensors().iter();
    let weights: u64 = weights.map(|t| t.bytes() as u64).sum();
    let stays = weights + session.cache_bytes() as u64;
    assert_eq!((done, total), (stays, stays));
    let copied = || runtime.memory().moved(DeviceType::Cpu, device);
    assert_eq!(copied().bytes, stays);
    let mut scores = Scores::default();
    session
        .feed_and_select(&PROMPT, &best, &mut scores)
        .unwrap();
    // Token ids and positions.
    assert_eq!(copied().bytes, stays + PROMPT.len() as u64 * (8 + 4));
    assert_eq!(runtime.used_devices(), [(device, 1 + 1)]);
}

pub(crate) fn what_was_begun_for_nothing_is_forgotten() {
    let model = load("Q4_K_M");
    let queued = Runtime::new([Queued::over(cpu())]);
    let direct = Runtime::new([cpu()]);
    let mut ahead = Session::new(&model, &queued, options()).unwrap();
    let mut behind = Session::new(&model, &direct, options()).unwrap();
    let all = Selection::default();
    let mut both = |fed: &[u32], back: usize, best: &Selection| {
        let [ahead, behind] = [&mut ahead, &mut behind].map(|session| {
            let mut scores = Scores::default();
            session.truncate(session.tokens().len() - back);
            session.feed_and_select(fed, best, &mut scores).unwrap();
            (scores.ids, scores.logits)
        });
        assert!(ahead == behind, "{fed:?} after {back} tokens less");
        ahead.0.map_or(0, |ids| ids[0])
    };
    let best = Selection::best();
    let chosen = both(&PROMPT, 0, &best);
    // Another token, several, one less, the same again, and other scores of the chosen one.
    both(&[chosen + 1], 0, &best);
    both(&[7, 8, 9], 0, &best);
    both(&[10], 2, &best);
    let chosen = both(&[10], 1, &best);
    both(&[chosen], 0, &all);
    let chosen = both(&[chosen], 1, &best);
    both(&[chosen], 0, &best);
}

pub(crate) fn faults_ahead_of_the_host_change_no_token() {
    // The parts of a refused product also give these tokens.
    let model = load("f16");
    let (expected, ..) = generate(&model, Queued::over(cpu()));
    // Faults strike where work is queued, and where it is done.
    let early = |fault| {
        let faulty = Arc::new(Faulty::new(Queued::over(cpu()), [fault]));
        (faulty.clone(), faulty as Arc<dyn Backend>)
    };
    let late = |fault| {
        let faulty = Arc::new(Faulty::new(cpu(), [fault]));
        (faulty.clone(), Queued::over(faulty))
    };
    for (device, failing) in [
        (DeviceType::Cuda(0), &early as &dyn Fn(Fault) -> _),
        (DeviceType::Cpu, &late),
    ] {
        let (faulty, first) = failing(fault(device, u64::MAX, FaultKind::Lost));
        generate(&model, first);
        let launches = faulty.launches();
        for kind in FaultKind::FAILURES {
            for nth in (1..launches).step_by(launches as usize / 9) {
                let (_, first) = failing(fault(device, nth, kind));
                let (told, _, runtime) = generate(&model, first);
                let what = format!("{} at launch {nth} of {device}", kind.name());
                assert_eq!(told, expected, "{what}");
                assert!(!runtime.fallbacks().is_empty(), "{what}");
            }
        }
    }
}
