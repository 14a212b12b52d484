//! Many texts at once: each is the same as alone, and each request ends once.

use std::sync::Arc;

use rustorch_conformance::Extent;
use rustorch_cpu::Cpu;
use rustorch_llm::engine::{Engine, EngineEvent, EngineOptions, Request, Stream};
use rustorch_llm::sampler::SamplerConfig;
use rustorch_llm::{LlmError, Model, SessionOptions, Stop};
use rustorch_runtime::{Backend, Runtime};
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

fn engine(model: &Arc<Model>, runtime: &Runtime, sequences: usize, queue: usize) -> Engine {
    let session = SessionOptions {
        context: 48,
        batch: 8,
        ..SessionOptions::default()
    };
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

pub(crate) fn texts_in_company_are_those_alone() {
    let model = Arc::new(load("Q8_0"));
    let expected = alone(&model, 12);
    for sequences in [1, 2, 4, 7] {
        let engine = engine(&model, &cpu(), sequences, 64);
        let submit = |i: usize| engine.submit(greedy(PROMPTS[i % 4], 12)).unwrap();
        let streams: Vec<Stream> = (0..12).map(submit).collect();
        for (i, stream) in streams.into_iter().enumerate() {
            let (ids, _) = answer(stream);
            assert_eq!(ids, expected[i % 4], "request {i} of {sequences} sequences");
        }
        let stats = engine.stats();
        assert_eq!((stats.finished, stats.failed), (12, 0));
        assert_eq!((stats.running, stats.waiting), (0, 0));
    }
}

/// Requests come, are cancelled, are late, and refused: each that was taken ends once, and no text is wrong.
pub(crate) fn random_requests_end_once() {
    let model = Arc::new(load("Q8_0"));
    let expected = alone(&model, 12);
    for seed in Extent::of_tests().choose(0..2000, 20) {
        let mut random = Random::new(seed as u64);
        let (sequences, queue) = (1 + random.below(5), random.below(6));
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
