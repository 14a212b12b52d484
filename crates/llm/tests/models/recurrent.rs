//! Recurrent states are those of a session's tokens alone, whatever happened before.

use std::ops::ControlFlow;
use std::sync::Arc;

use rustorch_conformance::Extent;
use rustorch_cpu::Cpu;
use rustorch_faulty::{Fault, FaultKind, Faulty, When};
use rustorch_llm::engine::{Engine, EngineOptions, Request, Stream};
use rustorch_llm::sampler::{SamplerChain, SamplerConfig};
use rustorch_llm::spec::ModelSpec;
use rustorch_llm::{
    Draft, GenerateOptions, Generated, LlmError, MemoryNeeds, Model, Session, SessionOptions,
    Speculation, SpeculationOptions, generate_with,
};
use rustorch_runtime::{Backend, DeviceType, Runtime};
use rustorch_testing::models::{Header, TOKENS};
use rustorch_testing::random::Random;

use crate::common::{cpu, difference, feed, headers, load, none_of, options};
use crate::feeding::NEAR;

/// Steps of a session's history.
const STEPS: usize = 16;

/// Tokens of the longest text.
const LONGEST: usize = 60;

/// Tokens of a generated text.
const GENERATED: usize = 12;

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

/// A device that fails at this launch, and another one.
fn failing(nth: u64, kind: FaultKind) -> (Arc<Faulty>, Runtime) {
    let fault = Fault {
        device: DeviceType::Cpu,
        op: None,
        when: When::Nth(nth),
        kind,
    };
    let faulty = Arc::new(Faulty::new(Arc::new(Cpu::new(1)), [fault]));
    let devices = [faulty.clone() as Arc<dyn Backend>, Arc::new(Cpu::new(1))];
    (faulty, Runtime::new(devices))
}

/// A device is lost in the middle of such a history; another one goes on.
pub(crate) fn after_a_loss() {
    let headers = Extent::of_tests().choose(recurrent(), 4);
    for nth in [40, 333] {
        check(&headers, || failing(nth, FaultKind::Lost).1);
    }
}

fn in_chunks() -> SessionOptions {
    SessionOptions {
        batch: 8,
        ..options()
    }
}

fn greedy() -> SamplerConfig {
    SamplerConfig::default().temperature(0.0)
}

/// The likeliest text behind a prompt, in a session of its own.
fn text(
    model: &Model,
    runtime: &Runtime,
    prompt: &[u32],
    speculation: Option<&mut Speculation>,
) -> Result<Generated, LlmError> {
    let mut session = Session::new(model, runtime, in_chunks())?;
    let mut sampler = SamplerChain::new(&greedy())?;
    let limits = GenerateOptions {
        max_tokens: Some(GENERATED),
        ignore_end: true,
        shift: None,
    };
    let on_event = |_| Ok::<_, LlmError>(ControlFlow::Continue(()));
    generate_with(
        &mut session,
        prompt,
        &mut sampler,
        &limits,
        speculation,
        on_event,
    )
}

/// Drafts of a known text, with a mistake at each place that three divides.
struct Mistaken(Vec<u32>);

impl Draft for Mistaken {
    fn propose(&mut self, tokens: &[u32], max: usize) -> Result<Vec<u32>, LlmError> {
        let next = self.0.iter().enumerate().skip(tokens.len()).take(max);
        Ok(next
            .map(|(at, id)| match at.is_multiple_of(3) {
                true => (id + 1) % 61,
                false => *id,
            })
            .collect())
    }
}

pub(crate) fn with_drafts() {
    let runtime = cpu();
    let problems = recurrent().into_iter().filter_map(|header| {
        let model = load(&header).unwrap();
        let prompt = &TOKENS[..17];
        let alone = text(&model, &runtime, prompt, None).unwrap().ids;
        let draft = Mistaken([prompt, &alone].concat());
        let options = SpeculationOptions {
            max: 3,
            min: 0,
            adaptive: false,
        };
        let mut speculation = Speculation::new(draft, options);
        let drafted = text(&model, &runtime, prompt, Some(&mut speculation)).unwrap();
        let stats = drafted.speculation;
        assert!(stats.accepted > 0 && stats.accepted < stats.drafted);
        (drafted.ids != alone).then(|| format!("{}: {:?}, not {alone:?}", header.name, drafted.ids))
    });
    none_of(&problems.collect::<Vec<_>>());
}

/// Three texts at once, and the first one's continuation behind them. Returns all texts, and the number of cached
/// tokens of the continuation.
fn company(model: &Arc<Model>, runtime: &Runtime) -> Result<(Vec<Vec<u32>>, usize), LlmError> {
    let options = EngineOptions {
        sequences: 3,
        queue: 3,
        session: in_chunks(),
        ..EngineOptions::default()
    };
    let engine = Engine::new(model.clone(), runtime, options)?;
    let submit = |prompt: &[u32]| {
        engine.submit(Request {
            max_tokens: Some(GENERATED),
            sampler: greedy(),
            ignore_end: true,
            ..Request::new(prompt)
        })
    };
    let prompts = prompts();
    let streams = prompts.into_iter().map(submit);
    let streams: Vec<Stream> = streams.collect::<Result<_, _>>()?;
    let texts = streams.into_iter().map(|stream| Ok(stream.finish()?.0));
    let mut texts = texts.collect::<Result<Vec<Vec<u32>>, LlmError>>()?;
    let longer = [prompts[0], &texts[0], &[7]].concat();
    let (more, _, usage) = submit(&longer)?.finish()?;
    texts.push(more);
    Ok((texts, usage.cached))
}

fn prompts() -> [&'static [u32]; 3] {
    [&TOKENS[..30], &TOKENS[3..9], &TOKENS[5..22]]
}

/// The texts of [`company`], each alone.
fn apart(model: &Model) -> Result<Vec<Vec<u32>>, LlmError> {
    let text = |prompt: &[u32]| Ok(text(model, &cpu(), prompt, None)?.ids);
    let mut texts = (prompts().into_iter().map(text)).collect::<Result<Vec<_>, LlmError>>()?;
    texts.push(text(&[prompts()[0], &texts[0], &[7]].concat())?);
    Ok(texts)
}

pub(crate) fn in_company() {
    let problems = recurrent().into_iter().filter_map(|header| {
        let model = Arc::new(load(&header).unwrap());
        let (texts, cached) = company(&model, &cpu()).unwrap();
        // The last token of a text is not computed.
        assert_eq!(cached, prompts()[0].len() + GENERATED - 1);
        let alone = apart(&model).unwrap();
        (texts != alone).then(|| format!("{}: {texts:?}, not {alone:?}", header.name))
    });
    none_of(&problems.collect::<Vec<_>>());
}

/// Each kind of failure amid three texts.
pub(crate) fn in_company_that_fails() {
    for header in Extent::of_tests().choose(recurrent(), 2) {
        let model = Arc::new(load(&header).unwrap());
        let alone = apart(&model).unwrap();
        let (counting, runtime) = failing(u64::MAX, FaultKind::Lost);
        assert_eq!(company(&model, &runtime).unwrap().0, alone);
        // Texts meet in other passes in each run, so a run may have fewer launches.
        let launches = counting.launches() / 2;
        for kind in FaultKind::FAILURES {
            for nth in Extent::of_tests().choose(1..launches, 2) {
                let runtime = failing(nth, kind).1;
                let texts = company(&model, &runtime).unwrap().0;
                let what = format!("{}: {} at launch {nth}", header.name, kind.name());
                assert_eq!(texts, alone, "{what}");
                // A pass that failed after it had changed a state is no fallback: the engine computes its texts again.
                // An error that shows late does not show behind the last launch that is waited for.
                let shows = runtime.memory().faults().total() > 0 || kind == FaultKind::Sync;
                assert!(shows, "{what}");
            }
        }
    }
}

/// A text that shares tokens with another, but no state, leaves the other's state alone.
pub(crate) fn states_of_others_stay() {
    for header in Extent::of_tests().choose(recurrent(), 2) {
        let model = Arc::new(load(&header).unwrap());
        let options = EngineOptions {
            sequences: 2,
            session: in_chunks(),
            ..EngineOptions::default()
        };
        let engine = Engine::new(model, &cpu(), options).unwrap();
        let answer = |prompt: &[u32]| {
            let request = Request {
                max_tokens: Some(GENERATED),
                sampler: greedy(),
                ignore_end: true,
                ..Request::new(prompt)
            };
            let (text, _, usage) = engine.submit(request).unwrap().finish().unwrap();
            (text, usage.cached)
        };
        let (text, _) = answer(&TOKENS[..20]);
        let (_, cached) = answer(&[&TOKENS[..15], &[7; 6]].concat());
        assert_eq!(cached, 0, "{}", header.name);
        let (_, cached) = answer(&[&TOKENS[..20], &text[..], &[7]].concat());
        assert_eq!(cached, 20 + GENERATED - 1, "{}", header.name);
    }
}

/// A program has operations for each token that a convolution reads.
pub(crate) fn kernels_have_bounds() {
    for header in recurrent() {
        let keys = ["ssm.conv_kernel", "shortconv.l_cache"];
        let architecture = header.keys.str("general.architecture").unwrap().to_owned();
        let mut keys = keys.map(|key| format!("{architecture}.{key}")).into_iter();
        // RWKV reads two tokens, whatever a file says, and MiniMax-01 one.
        let Some(key) = keys.find(|key| header.keys.get(key).is_some()) else {
            let has_none = architecture.contains("rwkv") || architecture == "minimax-01";
            assert!(has_none, "{architecture}");
            continue;
        };
        for size in [0_u32, 1, 65, 1 << 18] {
            let mut changed = header.keys.clone();
            changed.insert(&key, size);
            let error = ModelSpec::of_keys(&changed).unwrap_err().to_string();
            assert!(error.contains(&key), "{}: {error}", header.name);
        }
    }
}

/// A session goes on with the tokens whose state it has.
pub(crate) fn prefixes_end_with_a_state() {
    for header in recurrent() {
        let model = load(&header).unwrap();
        let runtime = cpu();
        let mut session = Session::new(&model, &runtime, options()).unwrap();
        let kept = |session: &mut Session, text: &[u32]| session.keep_prefix(text);
        feed(&mut session, &TOKENS[..9], &mut Vec::new()).unwrap();
        feed(&mut session, &TOKENS[9..14], &mut Vec::new()).unwrap();
        assert_eq!(kept(&mut session, &TOKENS[..20]), 14, "{}", header.name);
        // The state before the last pass is there, too.
        assert_eq!(kept(&mut session, &TOKENS[..12]), 9, "{}", header.name);
        assert_eq!(kept(&mut session, &TOKENS[..5]), 0, "{}", header.name);
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
