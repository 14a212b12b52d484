//! Many texts at once: each is the same as alone, and each request ends once.

use std::ops::ControlFlow;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rustorch_conformance::Extent;
use rustorch_cpu::Cpu;
use rustorch_faulty::{Fault, FaultKind, Faulty, When};
use rustorch_ir::DType;
use rustorch_llm::engine::{Engine, EngineEvent, EngineOptions, Request, Stream};
use rustorch_llm::sampler::{SamplerChain, SamplerConfig};
use rustorch_llm::{
    Event, GenerateOptions, LlmError, Model, Session, SessionOptions, Stop, generate,
};
use rustorch_runtime::{Backend, Routing, Runtime};
use rustorch_testing::random::Random;

use crate::common::load;

/// Prompts of different lengths.
const PROMPTS: [&[u32]; 4] = [
    &[0, 48, 1299, 602, 260],
    &[0, 97],
    &[0],
    &[0, 300, 301, 302, 303, 304, 305, 306, 307, 308, 309, 310],
];

fn cpu() -> Runtime {
    Runtime::new([Arc::new(Cpu::new(1)) as Arc<dyn Backend>])
}

fn session() -> SessionOptions {
    SessionOptions {
        context: 48,
        batch: 8,
        ..SessionOptions::default()
    }
}

fn engine(model: &Arc<Model>, runtime: &Runtime, sequences: usize, queue: usize) -> Engine {
    engine_with(model, runtime, sequences, queue, session())
}

fn engine_with(
    model: &Arc<Model>,
    runtime: &Runtime,
    sequences: usize,
    queue: usize,
    session: SessionOptions,
) -> Engine {
    let options = EngineOptions {
        sequences,
        queue,
        session,
        batch_invariant: true,
    };
    Engine::new(model.clone(), runtime, options).unwrap()
}

fn greedy(prompt: &[u32], tokens: usize) -> Request {
    Request {
        max_tokens: Some(tokens),
        sampler: SamplerConfig::default().temperature(0.0),
        ..Request::new(prompt)
    }
}

/// The tokens of an answer, after a check of the order of its events.
fn answer(stream: Stream) -> (Vec<u32>, Result<Stop, LlmError>) {
    let (mut ids, mut started, mut end) = (Vec::new(), 0, None);
    for event in stream {
        assert!(end.is_none(), "an event behind the last");
        match event {
            EngineEvent::Started { .. } => started += 1,
            EngineEvent::Prompt { .. } => assert_eq!((started, ids.len()), (1, 0)),
            EngineEvent::Token { id, .. } => ids.push(id),
            EngineEvent::Done { stop, usage } => {
                assert_eq!(usage.generated, ids.len());
                end = Some(Ok(stop));
            }
            EngineEvent::Failed(error) => end = Some(Err(error)),
            _ => panic!("an unknown event"),
        }
    }
    (ids, end.expect("no last event"))
}

/// Each prompt's greedy text, alone.
fn alone(model: &Arc<Model>, tokens: usize) -> Vec<Vec<u32>> {
    let engine = engine(model, &cpu(), 1, 0);
    let text = |prompt: &&[u32]| {
        let (ids, stop) = answer(engine.submit(greedy(prompt, tokens)).unwrap());
        assert!(matches!(stop, Ok(Stop::Limit | Stop::End)), "{stop:?}");
        ids
    };
    PROMPTS.iter().map(text).collect()
}

/// Submits all requests before the engine computes the first. Returns their texts.
fn together(engine: &Engine, requests: Vec<Request>) -> Vec<Vec<u32>> {
    let (go, wait) = mpsc::channel::<()>();
    let hold = move |event| {
        if matches!(event, EngineEvent::Started { .. }) {
            let _ = wait.recv();
        }
        ControlFlow::Break(())
    };
    engine.submit_to(greedy(&[0], 1), hold).unwrap();
    let submit = |request| engine.submit(request).unwrap();
    let streams: Vec<Stream> = requests.into_iter().map(submit).collect();
    go.send(()).unwrap();
    let text = |stream| {
        let (ids, end) = answer(stream);
        assert!(end.is_ok(), "{end:?}");
        ids
    };
    streams.into_iter().map(text).collect()
}

/// A pass of up to 8 rows has the sums of one row; more texts take several passes.
pub(crate) fn texts_in_company_are_those_alone() {
    let model = Arc::new(load("Q8_0"));
    let expected = alone(&model, 12);
    for sequences in [1, 2, 3, 5, 8, 9, 12] {
        let engine = engine(&model, &cpu(), sequences, 64);
        let requests = (0..12).map(|i| greedy(PROMPTS[i % 4], 12)).collect();
        for (i, ids) in together(&engine, requests).into_iter().enumerate() {
            assert_eq!(ids, expected[i % 4], "request {i} of {sequences} sequences");
        }
        engine.drain();
        let stats = engine.stats();
        assert_eq!((stats.finished, stats.failed), (13, 0));
        assert_eq!((stats.running, stats.waiting), (0, 0));
        assert_eq!(stats.rows > stats.steps, sequences > 1, "{stats:?}");
    }
}

/// The tokens of each text, and the log probabilities of the likeliest in their places.
type Scored = Vec<Vec<(u32, Vec<(u32, f32)>)>>;

fn scored(engine: &Engine, prompts: &[Vec<u32>], tokens: usize) -> Scored {
    let submit = |prompt: &Vec<u32>| {
        let request = Request {
            logprobs: Some(256),
            ignore_end: true,
            ..greedy(prompt, tokens)
        };
        engine.submit(request).unwrap()
    };
    let streams: Vec<Stream> = prompts.iter().map(submit).collect();
    let text = |stream: Stream| {
        let token = |event| match event {
            EngineEvent::Token { id, logprobs } => Some((id, logprobs.unwrap().top)),
            EngineEvent::Failed(error) => panic!("{error}"),
            _ => None,
        };
        stream.filter_map(token).collect()
    };
    streams.into_iter().map(text).collect()
}

/// The largest difference between log probabilities, up to the first token that differs; and the texts that differ.
fn apart(a: &Scored, b: &Scored) -> (f32, usize) {
    let (mut most, mut texts) = (0.0_f32, 0);
    for (a, b) in a.iter().zip(b) {
        for ((id, top), (other, tops)) in a.iter().zip(b) {
            for (id, logprob) in top {
                // The last of the likeliest may be others.
                if let Some((_, found)) = tops.iter().find(|(other, _)| other == id) {
                    most = most.max((logprob - found).abs());
                }
            }
            if id != other {
                texts += 1;
                break;
            }
        }
    }
    (most, texts)
}

/// A row has the bits of one alone, for every type of weights: with up to 8 texts, and with more if asked for.
/// Otherwise more texts differ by rounding, which is small where activations are not rounded.
pub(crate) fn a_row_is_the_same_in_company() {
    let prompts: Vec<Vec<u32>> = (0..12).map(|i| vec![0, 97 + 31 * i]).collect();
    for name in ["f16", "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M"] {
        let model = Arc::new(load(name));
        let with = |sequences, batch_invariant| {
            // A cache in halves would round differences up.
            let session = SessionOptions {
                cache_dtype: DType::F32,
                ..session()
            };
            let options = EngineOptions {
                sequences,
                queue: 12,
                session,
                batch_invariant,
            };
            let engine = Engine::new(model.clone(), &cpu(), options).unwrap();
            let texts = scored(&engine, &prompts, 10);
            assert_eq!(engine.stats().rows > engine.stats().steps, sequences > 1);
            texts
        };
        let alone = with(1, false);
        for sequences in 2..=8 {
            assert_eq!(
                with(sequences, false),
                alone,
                "{name}, {sequences} sequences"
            );
        }
        assert_eq!(with(12, true), alone, "{name}, 12 sequences");
        let (most, texts) = apart(&with(12, false), &alone);
        println!("{name}: 12 sequences differ by {most}, {texts} texts");
        let bound = if name == "f16" { 1e-4 } else { 0.5 };
        assert!(most < bound, "{name}: {most}");
    }
}

/// Each request has samplers, a seed and a form of its own, in one batch.
pub(crate) fn each_text_has_its_own_samplers() {
    let model = Arc::new(load("Q8_0"));
    let config = |seed: u32| SamplerConfig {
        seed: Some(seed),
        ..SamplerConfig::default()
    };
    let configs = [
        config(1),
        config(2).temperature(0.0),
        config(3).top_k(0).top_p(1.0).min_p(0.0),
        config(4).repeat_penalty(1.3),
    ];
    // A prompt of so few tokens has the same sums in one pass as token by token.
    let prompt = [0, 48, 1299];
    let runtime = cpu();
    let expected = configs.clone().map(|config| {
        let mut alone = Session::new(&model, &runtime, session()).unwrap();
        let mut chain = SamplerChain::new(&config).unwrap();
        let options = GenerateOptions {
            max_tokens: Some(10),
            ignore_end: true,
            shift: None,
        };
        let go_on = |_: Event| Ok::<_, LlmError>(ControlFlow::Continue(()));
        generate(&mut alone, &prompt, &mut chain, &options, go_on)
            .unwrap()
            .ids
    });
    let request = |config| Request {
        sampler: config,
        ignore_end: true,
        ..greedy(&prompt, 10)
    };
    let engine = engine(&model, &runtime, 4, 4);
    let texts = together(&engine, configs.into_iter().map(request).collect());
    assert_eq!(texts, expected);
}

pub(crate) fn log_probabilities_are_the_models() {
    let model = Arc::new(load("Q8_0"));
    let runtime = cpu();
    let engine = engine(&model, &runtime, 2, 2);
    let request = Request {
        logprobs: Some(3),
        prompt_logprobs: Some(2),
        ..greedy(PROMPTS[3], 4)
    };
    let (mut prompt, mut text) = (Vec::new(), Vec::new());
    for event in engine.submit(request).unwrap() {
        match event {
            EngineEvent::Prompt { logprobs, .. } => prompt.extend(logprobs),
            EngineEvent::Token { id, logprobs } => text.push((id, logprobs.unwrap())),
            _ => {}
        }
    }
    let ids = PROMPTS[3]
        .iter()
        .copied()
        .chain(text.iter().map(|(id, _)| *id));
    let ids: Vec<u32> = ids.collect();
    let mut expected = Vec::new();
    let mut alone = Session::new(&model, &runtime, session()).unwrap();
    // In the engine's passes, two of the prompt and one for each later token, for the same sums.
    let (chunks, single) = ids.split_at(PROMPTS[3].len() - 1);
    for pass in chunks.chunks(8).chain(single.chunks(1)) {
        let kept = alone.feed_all(pass, |_, logits| {
            let rows = logits.chunks_exact(model.spec().vocab);
            expected.extend(rows.map(<[f32]>::to_vec));
            Ok::<_, LlmError>(())
        });
        kept.unwrap();
    }
    assert_eq!((prompt.len(), text.len()), (PROMPTS[3].len() - 1, 4));
    let found = prompt
        .into_iter()
        .chain(text.into_iter().map(|(_, found)| found));
    for (i, found) in found.enumerate() {
        let logits = &expected[i];
        let total = logits.iter().map(|&x| f64::from(x).exp()).sum::<f64>().ln();
        let of = |id: u32| (f64::from(logits[id as usize]) - total) as f32;
        assert!((found.logprob - of(ids[i + 1])).abs() < 1e-4, "token {i}");
        assert_eq!(
            found.top.len(),
            if i + 1 < PROMPTS[3].len() { 2 } else { 3 }
        );
        assert!(found.top.iter().all(|&(id, p)| (p - of(id)).abs() < 1e-4));
        assert!(found.top.is_sorted_by(|a, b| a.1 >= b.1));
    }
}

/// A beginning is computed once for requests of the same salt.
pub(crate) fn beginnings_are_shared_by_salt() {
    let model = Arc::new(load("Q8_0"));
    let engine = engine(&model, &cpu(), 2, 2);
    let cached = |salt: u64, prompt: &[u32]| {
        let request = Request {
            cache_salt: salt,
            ..greedy(prompt, 2)
        };
        let (ids, _, usage) = engine.submit(request).unwrap().finish().unwrap();
        (ids, usage.cached)
    };
    let longer = [PROMPTS[3], &[400, 401]].concat();
    let (fresh, none) = cached(1, &longer);
    assert_eq!(none, 0);
    // The same prompt is cached, except its last token.
    assert_eq!(cached(1, &longer), (fresh.clone(), longer.len() - 1));
    assert_eq!(cached(1, PROMPTS[3]).1, PROMPTS[3].len() - 1);
    let (other, none) = cached(2, &longer);
    assert_eq!((other, none), (fresh, 0));
    engine.drain();
    let stats = engine.stats();
    assert_eq!(
        stats.cached_tokens as usize,
        longer.len() + PROMPTS[3].len() - 2
    );
}

/// Programs are made once for a number of rows.
pub(crate) fn a_warm_engine_makes_no_programs() {
    let model = Arc::new(load("Q8_0"));
    let runtime = cpu();
    let engine = engine(&model, &runtime, 4, 8);
    let requests = || {
        (0..4)
            .map(|i| greedy(&[0, 9 * i as u32], 4 + 3 * i))
            .collect()
    };
    together(&engine, requests());
    let warm = runtime.plans().new;
    together(&engine, requests());
    together(&engine, requests());
    assert_eq!(runtime.plans().new, warm);
}

/// A device that fails at launches.
fn failing(at: impl IntoIterator<Item = u64>, kind: FaultKind) -> (Arc<Faulty>, SessionOptions) {
    let inner: Arc<dyn Backend> = Arc::new(Cpu::new(1));
    let device = inner.info().device;
    let fault = |n| Fault {
        device,
        op: None,
        when: When::Nth(n),
        kind,
    };
    let routing = Routing {
        device,
        ..Routing::AUTO
    };
    let options = SessionOptions {
        routing,
        ..session()
    };
    (
        Arc::new(Faulty::new(inner, at.into_iter().map(fault))),
        options,
    )
}

/// A device fails under 8 streams: all go on with the same tokens.
pub(crate) fn faults_change_no_text() {
    let model = Arc::new(load("Q8_0"));
    let prompt = |i: usize| [PROMPTS[i % 4], &[400 + i as u32]].concat();
    let requests = || (0..8).map(|i| greedy(&prompt(i), 8)).collect();
    let run = |n: u64, kind| {
        let (faulty, options) = failing([n], kind);
        let runtime = Runtime::new([faulty.clone() as Arc<dyn Backend>, Arc::new(Cpu::new(1))]);
        let engine = engine_with(&model, &runtime, 8, 8, options);
        let texts = together(&engine, requests());
        engine.drain();
        assert_eq!(engine.stats().failed, 0);
        (texts, faulty.launches(), runtime.fallbacks().len())
    };
    let (expected, launches, fallbacks) = run(u64::MAX, FaultKind::Lost);
    assert_eq!(fallbacks, 0);
    for kind in FaultKind::FAILURES {
        for n in Extent::of_tests().choose(1..launches, 6) {
            let (texts, _, fallbacks) = run(n, kind);
            let what = format!("{} at launch {n} of {launches}", kind.name());
            assert_eq!(texts, expected, "{what}");
            assert_eq!(fallbacks, 1, "{what}");
        }
    }
}

/// Without another device, a smaller batch is tried; a request whose own pass fails gets the error.
pub(crate) fn a_batch_that_fails_is_made_smaller() {
    let model = Arc::new(load("Q8_0"));
    let requests = || (0..3).map(|i| greedy(PROMPTS[i], 8)).collect();
    let (faulty, options) = failing([], FaultKind::OutOfMemory);
    let runtime = Runtime::new([faulty.clone() as Arc<dyn Backend>]);
    let whole = engine_with(&model, &runtime, 3, 4, options);
    let expected = together(&whole, requests());
    let launches = faulty.launches();
    // In the middle there are three rows in each pass, and a pass is tried twice.
    let (faulty, options) = failing([launches / 2, launches / 2 + 1], FaultKind::OutOfMemory);
    let runtime = Runtime::new([faulty as Arc<dyn Backend>]);
    let engine = engine_with(&model, &runtime, 3, 4, options);
    assert_eq!(together(&engine, requests()), expected);
    engine.drain();
    whole.drain();
    let (more, fewer) = (engine.stats(), whole.stats());
    assert_eq!((more.failed, more.rows), (0, fewer.rows));
    assert!(more.steps > fewer.steps, "{more:?} {fewer:?}");
}

pub(crate) fn wrong_requests_are_refused() {
    let model = Arc::new(load("Q8_0"));
    let engine = engine(&model, &cpu(), 1, 0);
    let refused = |request| engine.submit(request).err().expect("a refusal");
    assert!(matches!(refused(Request::new([])), LlmError::Input(_)));
    assert!(matches!(
        refused(greedy(&[0; 49], 1)),
        LlmError::ContextFull {
            more: 49,
            size: 48,
            ..
        }
    ));
    assert!(matches!(
        refused(greedy(&[0, 1 << 30], 1)),
        LlmError::Token { .. }
    ));
    let none = EngineOptions {
        sequences: 0,
        ..EngineOptions::default()
    };
    assert!(Engine::new(model.clone(), &cpu(), none).is_err());
    // A context that fills up ends the text.
    let (ids, stop, _) = engine
        .submit(Request {
            max_tokens: None,
            ignore_end: true,
            ..greedy(&[0, 5], 0)
        })
        .unwrap()
        .finish()
        .unwrap();
    assert_eq!((ids.len(), stop), (47, Stop::Context));
}

/// Requests that end before their text: in the queue or in the midst of a prompt. The other one is not disturbed.
pub(crate) fn requests_end_before_their_texts() {
    let model = Arc::new(load("Q8_0"));
    let expected = alone(&model, 12);
    let engine = engine(&model, &cpu(), 1, 4);
    let (go, wait) = mpsc::channel::<()>();
    let hold = move |event| {
        if matches!(event, EngineEvent::Started { .. }) {
            let _ = wait.recv();
        }
        ControlFlow::Continue(())
    };
    engine.submit_to(greedy(&[0], 1), hold).unwrap();
    // It waits until its time is over.
    let late = Request {
        deadline: Some(Instant::now() + Duration::from_millis(1)),
        ..greedy(PROMPTS[0], 4)
    };
    let late = engine.submit(late).unwrap();
    // Its first chunk of four is its last.
    let (chunks, seen) = mpsc::channel();
    let cancelled = move |event: EngineEvent| match event {
        EngineEvent::Prompt { done, .. } => {
            chunks.send(Some(done)).unwrap();
            ControlFlow::Break(())
        }
        EngineEvent::Done { stop, usage } => {
            assert_eq!((stop, usage.generated), (Stop::Caller, 0));
            chunks.send(None).unwrap();
            ControlFlow::Break(())
        }
        EngineEvent::Started { .. } => ControlFlow::Continue(()),
        other => panic!("{other:?}"),
    };
    engine.submit_to(greedy(&[5; 30], 4), cancelled).unwrap();
    let other = engine.submit(greedy(PROMPTS[1], 12)).unwrap();
    let none = engine.submit(greedy(PROMPTS[3], 0)).unwrap();
    thread::sleep(Duration::from_millis(5));
    go.send(()).unwrap();
    let (ids, end) = answer(late);
    assert!(matches!(end, Err(LlmError::Deadline)), "{end:?}");
    assert!(ids.is_empty());
    assert_eq!(seen.iter().collect::<Vec<_>>(), [Some(8), None]);
    assert_eq!(answer(other).0, expected[1]);
    let (ids, end) = answer(none);
    assert_eq!((ids.len(), end.unwrap()), (0, Stop::Limit));
    engine.drain();
    assert_eq!((engine.stats().finished, engine.stats().failed), (5, 1));
}

/// The way in which a request of a random schedule ends early.
#[derive(Clone, Copy, PartialEq)]
enum Early {
    No,
    /// Cancelled at once.
    Cancelled,
    /// Late from the begin.
    Late,
    /// Refused by its receiver at this event.
    Refused(usize),
}

/// Requests come, are cancelled, are late, and refused; the device fails. Each that was taken ends once, in the order
/// of its events, and no text is wrong.
pub(crate) fn random_requests_end_once() {
    let model = Arc::new(load("Q8_0"));
    let expected = alone(&model, 12);
    for seed in Extent::of_tests().choose(0..2000, 20) {
        let mut random = Random::new(seed as u64);
        let (sequences, queue) = (1 + random.below(10), random.below(6));
        let faults: Vec<u64> = (0..random.below(3))
            .map(|_| 1 + random.below(4000) as u64)
            .collect();
        let kind = FaultKind::FAILURES[random.below(FaultKind::FAILURES.len())];
        let (faulty, options) = failing(faults, kind);
        let runtime = Runtime::new([faulty as Arc<dyn Backend>, Arc::new(Cpu::new(1))]);
        let engine = engine_with(&model, &runtime, sequences, queue, options);
        let (ended, ends) = mpsc::channel();
        let (mut taken, mut refused) = (0, 0);
        for _ in 0..30 {
            let which = random.below(4);
            let early = match random.below(8) {
                0 => Early::Cancelled,
                1 => Early::Late,
                2 => Early::Refused(random.below(8)),
                _ => Early::No,
            };
            let request = Request {
                deadline: (early == Early::Late).then(Instant::now),
                priority: random.below(3) as i32,
                ..greedy(PROMPTS[which], random.below(13))
            };
            let (limit, ended) = (request.max_tokens.unwrap(), ended.clone());
            let (mut events, mut ids, mut started) = (0, Vec::new(), false);
            let sink = move |event: EngineEvent| {
                events += 1;
                match event {
                    EngineEvent::Started { .. } => assert!(!std::mem::replace(&mut started, true)),
                    EngineEvent::Token { id, .. } => ids.push(id),
                    EngineEvent::Prompt { .. } => assert!(started && ids.is_empty()),
                    EngineEvent::Done { stop, usage } => {
                        assert_eq!(usage.generated, ids.len());
                        let text = (which, limit, early, ids.clone());
                        ended.send((text, Ok(stop))).unwrap();
                    }
                    EngineEvent::Failed(error) => {
                        let text = (which, limit, early, ids.clone());
                        ended.send((text, Err(error))).unwrap();
                    }
                    _ => {}
                }
                match early == Early::Refused(events) {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            };
            match engine.submit_to(request, sink) {
                Ok(id) => {
                    taken += 1;
                    if early == Early::Cancelled {
                        engine.cancel(id);
                    }
                }
                Err(LlmError::Busy { .. }) => refused += 1,
                Err(error) => panic!("seed {seed}: {error}"),
            }
            if random.below(3) == 0 {
                thread::yield_now();
            }
        }
        engine.drain();
        drop(ended);
        assert!(engine.submit(greedy(PROMPTS[0], 1)).is_err());
        let stats = engine.stats();
        drop(engine);
        let ends: Vec<_> = ends.iter().collect();
        assert_eq!((ends.len(), taken + refused), (taken, 30), "seed {seed}");
        assert_eq!((stats.running, stats.waiting), (0, 0));
        assert_eq!(stats.finished, taken as u64);
        let failed = ends.iter().filter(|(_, end)| end.is_err()).count();
        assert_eq!(stats.failed, failed as u64);
        for ((which, limit, early, ids), end) in ends {
            assert!(expected[which].starts_with(&ids), "seed {seed}: {ids:?}");
            match end {
                Ok(Stop::Limit) => assert_eq!(ids.len(), limit),
                Ok(Stop::End) => assert_eq!(ids, expected[which]),
                Ok(Stop::Caller) => assert!(matches!(early, Early::Cancelled | Early::Refused(_))),
                Err(LlmError::Deadline) => assert!(early == Early::Late),
                other => panic!("seed {seed}: {other:?}"),
            }
        }
    }
}
