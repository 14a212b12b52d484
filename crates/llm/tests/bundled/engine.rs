//! Many texts at once: each is the same as alone, and each request ends once.

use std::ops::ControlFlow;
use std::sync::{Arc, mpsc};

use rustorch_conformance::Extent;
use rustorch_cpu::Cpu;
use rustorch_faulty::{Fault, FaultKind, Faulty, When};
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

/// Up to four rows at once have the sums of one row.
pub(crate) fn texts_in_company_are_those_alone() {
    let model = Arc::new(load("Q8_0"));
    let expected = alone(&model, 12);
    for sequences in [1, 2, 3, 4] {
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

/// A device fails under several texts: all go on with the same tokens.
pub(crate) fn faults_change_no_text() {
    let model = Arc::new(load("Q8_0"));
    let requests = || (0..3).map(|i| greedy(PROMPTS[i], 8)).collect();
    let run = |n: u64, kind| {
        let (faulty, options) = failing([n], kind);
        let runtime = Runtime::new([faulty.clone() as Arc<dyn Backend>, Arc::new(Cpu::new(1))]);
        let engine = engine_with(&model, &runtime, 3, 4, options);
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

/// Requests come, are cancelled, are late, and refused: each that was taken ends once, and no text is wrong.
pub(crate) fn random_requests_end_once() {
    let model = Arc::new(load("Q8_0"));
    let expected = alone(&model, 12);
    for seed in Extent::of_tests().choose(0..2000, 20) {
        let mut random = Random::new(seed as u64);
        let (sequences, queue) = (1 + random.below(4), random.below(6));
        let engine = engine(&model, &cpu(), sequences, queue);
        let mut streams = Vec::new();
        for _ in 0..20 {
            let which = random.below(4);
            let late = random.below(6) == 0;
            let request = Request {
                deadline: late.then(std::time::Instant::now),
                priority: random.below(3) as i32,
                ..greedy(PROMPTS[which], random.below(13))
            };
            let limit = request.max_tokens;
            match engine.submit(request) {
                Ok(stream) => match random.below(5) {
                    0 => drop(stream),
                    n => {
                        if n == 1 {
                            engine.cancel(stream.id());
                        }
                        streams.push((which, limit, n == 1, late, stream));
                    }
                },
                Err(error) => assert!(matches!(error, LlmError::Busy { .. }), "{error}"),
            }
            if random.below(3) == 0 {
                std::thread::yield_now();
            }
        }
        for (which, limit, cancelled, late, stream) in streams {
            let (ids, end) = answer(stream);
            assert!(expected[which].starts_with(&ids), "seed {seed}: {ids:?}");
            match end {
                Ok(Stop::Limit) => assert_eq!(Some(ids.len()), limit),
                Ok(Stop::End) => assert_eq!(ids, expected[which]),
                Ok(Stop::Caller) => assert!(cancelled),
                Err(LlmError::Deadline) => assert!(late),
                other => panic!("seed {seed}: {other:?}"),
            }
        }
        engine.drain();
        assert!(engine.submit(greedy(PROMPTS[0], 1)).is_err());
        assert_eq!((engine.stats().running, engine.stats().waiting), (0, 0));
    }
}
