//! Layers with a window keep what it shows, and no more.

use std::ops::ControlFlow;
use std::sync::Arc;

use rustorch_conformance::Extent;
use rustorch_cpu::Cpu;
use rustorch_faulty::{Fault, FaultKind, Faulty, When};
use rustorch_ir::{BlockFormat, DType, OpKind};
use rustorch_llm::sampler::{SamplerChain, SamplerConfig};
use rustorch_llm::spec::ModelSpec;
use rustorch_llm::{
    Draft, Event, GenerateOptions, LlmError, MemoryNeeds, Model, Placement, Scores, Selection,
    Session, SessionOptions, Speculation, SpeculationOptions, generate_with,
};
use rustorch_runtime::{Backend, DeviceType, Routing, Runtime};
use rustorch_testing::models::Header;
use rustorch_testing::queued::Queued;

use crate::common::{Devices, cpu, difference, feed, headers, load, none_of};
use crate::feeding::NEAR;

/// Tokens of the context: more than five times the rows of a window and a small batch.
const CONTEXT: usize = 240;

/// The most tokens that the windows of these models have.
const WINDOW: usize = 12;

fn text(len: usize) -> Vec<u32> {
    (0..len)
        .map(|i| ((i * i * 7 + 3 * i + 3) % 61) as u32)
        .collect()
}

/// Sessions with this batch; a batch of the whole context needs all rows.
fn options(batch: usize, cache_dtype: DType) -> SessionOptions {
    SessionOptions {
        context: CONTEXT,
        batch,
        cache_dtype,
        ..SessionOptions::default()
    }
}

/// Models with a window that is shorter than the context.
fn windowed() -> Vec<Header> {
    let headers = headers().into_iter();
    let found: Vec<_> = headers
        .filter(|header| is_windowed(&load(header).unwrap()))
        .collect();
    assert!(found.len() > 15, "{}", found.len());
    found
}

fn is_windowed(model: &Model) -> bool {
    let mut layers = model.spec().layers.iter();
    layers.any(|layer| layer.state().seen(CONTEXT) == WINDOW)
}

/// Bytes of keys and values of a session of f32.
fn bytes(model: &Model, batch: usize) -> usize {
    let session = Session::new(model, &cpu(), options(batch, DType::F32)).unwrap();
    session.cache_bytes()
}

/// Compares the logits of the last tokens, `rows` of `way`, with those of layers that have all rows.
fn same(headers: &[Header], way: impl Fn(&Model) -> Result<Vec<f32>, LlmError>) {
    same_in(headers, DType::F32, NEAR, way);
}

fn same_in(
    headers: &[Header],
    dtype: DType,
    near: f32,
    way: impl Fn(&Model) -> Result<Vec<f32>, LlmError>,
) {
    let problems = headers.iter().filter_map(|header| {
        let model = load(header).unwrap();
        let mut whole = Session::new(&model, &cpu(), options(CONTEXT, dtype)).unwrap();
        let mut expected = Vec::new();
        feed(&mut whole, &text(CONTEXT), &mut expected).unwrap();
        let name = &header.name;
        match way(&model) {
            Ok(found) => {
                let difference = difference(&found, &expected[expected.len() - found.len()..]);
                let problem = || format!("{name}: differs by {difference:.1e} of the largest");
                (difference > near).then(problem)
            }
            Err(error) => Some(format!("{name}: {error}")),
        }
    });
    none_of(&problems.collect::<Vec<_>>());
}

fn fed(model: &Model, runtime: &Runtime, options: SessionOptions) -> Result<Vec<f32>, LlmError> {
    let mut rows = Vec::new();
    feed(
        &mut Session::new(model, runtime, options)?,
        &text(CONTEXT),
        &mut rows,
    )?;
    Ok(rows)
}

/// Batches of one token, of several, and of more than a window.
pub(crate) fn logits_are_those_of_all_rows() {
    for batch in [1, 7, 50] {
        same(&windowed(), |model| {
            fed(model, &cpu(), options(batch, DType::F32))
        });
    }
}

/// Keys and values in fewer bits differ by their roundings, which are the same wherever they lie.
pub(crate) fn keys_of_every_type_move() {
    for (dtype, near) in [(DType::F16, 4e-3), (DType::BF16, 3e-2)] {
        same_in(&windowed(), dtype, near, |model| {
            fed(model, &cpu(), options(7, dtype))
        });
    }
    let blocks = DType::Block(BlockFormat::Q8_0);
    same_in(&[wide()], blocks, 3e-2, |model| {
        fed(model, &cpu(), options(7, blocks))
    });
}

/// A model with heads of 32, which are a block of `Q8_0`.
fn wide() -> Header {
    let mut headers = windowed().into_iter();
    let mut header = headers
        .find(|header| header.name.starts_with("gemma3"))
        .unwrap();
    for part in ["key", "value"] {
        let key = format!("gemma3.attention.{part}_length");
        header.keys.insert(&key, 32_u32);
    }
    let spec = ModelSpec::of_keys(&header.keys).unwrap();
    let tensors = spec.tensors(&[]).unwrap().into_iter();
    let dims = |shape: Vec<usize>| shape.into_iter().rev().map(|dim| dim as u64).collect();
    header.tensors = tensors
        .map(|tensor| (tensor.name, dims(tensor.shape)))
        .collect();
    header
}

/// A session, its estimate, and the growth with the context.
pub(crate) fn memory_is_that_of_a_window_and_a_batch() {
    for header in windowed() {
        let model = load(&header).unwrap();
        let (small, whole) = (bytes(&model, 8), bytes(&model, CONTEXT));
        assert!(small < whole, "{}", header.name);
        let needs = |context| {
            let options = SessionOptions {
                context,
                ..options(8, DType::F32)
            };
            MemoryNeeds::new(&model, &options).unwrap()
        };
        assert_eq!(needs(CONTEXT).cache, small as u64, "{}", header.name);
        let (short, long) = (needs(CONTEXT), needs(1 << 20));
        assert_eq!(short.windows, long.windows, "{}", header.name);
        let growing = |needs: &MemoryNeeds| needs.cache - needs.windows;
        let factor = (1 << 20) / CONTEXT as u64;
        assert!(
            growing(&long) >= growing(&short) * factor,
            "{}",
            header.name
        );
    }
}

/// A few tokens are dropped as they are; more make the session compute those before them again.
pub(crate) fn after_truncation() {
    let headers = Extent::of_tests().choose(windowed(), 5);
    for dropped in [1, 16, 17, 60, 150] {
        same(&headers, |model| {
            let runtime = cpu();
            let mut session = Session::new(model, &runtime, options(7, DType::F32))?;
            let (text, mut rows) = (text(CONTEXT), Vec::new());
            let at = CONTEXT - 35 - dropped;
            feed(&mut session, &text[..at], &mut Vec::new())?;
            feed(&mut session, &vec![5; dropped], &mut Vec::new())?;
            session.truncate(at);
            feed(&mut session, &text[at..], &mut rows)?;
            Ok(rows)
        });
    }
}

/// A device is lost in a pass, and while rows move.
pub(crate) fn after_a_loss() {
    let headers = Extent::of_tests().choose(windowed(), 4);
    let moves = Some(OpKind::IndexSelect);
    for (op, nth) in [(None, 300), (moves, 1), (moves, 2), (moves, 5)] {
        same(&headers, |model| {
            let fault = Fault {
                device: DeviceType::Cpu,
                op,
                when: When::Nth(nth),
                kind: FaultKind::Lost,
            };
            let faulty = Arc::new(Faulty::new(Arc::new(Cpu::new(1)), [fault]));
            let runtime = Runtime::new([faulty as Arc<dyn Backend>, Arc::new(Cpu::new(1))]);
            let rows = fed(
                model,
                &runtime,
                first(DeviceType::Cpu, options(20, DType::F32)),
            )?;
            assert_eq!(runtime.fallbacks().len(), 1);
            Ok(rows)
        });
    }
}

/// Memory is refused while rows move, or while they are computed again: the session computes them again.
pub(crate) fn after_a_failure() {
    while_rows_move();
    while_rows_are_computed_again();
}

fn while_rows_move() {
    let headers = Extent::of_tests().choose(windowed(), 4);
    same(&headers, |model| {
        // It is tried once more.
        let faults = [2, 3].map(|nth| Fault {
            device: DeviceType::Cpu,
            op: Some(OpKind::IndexSelect),
            when: When::Nth(nth),
            kind: FaultKind::OutOfMemory,
        });
        let faulty = Arc::new(Faulty::new(Arc::new(Cpu::new(1)), faults));
        let runtime = Runtime::new([faulty as Arc<dyn Backend>]);
        let mut session = Session::new(model, &runtime, options(20, DType::F32))?;
        let (text, mut rows) = (text(CONTEXT), Vec::new());
        let mut fed = 0;
        let mut failures = 0;
        while fed < text.len() {
            let end = (fed + 20).min(text.len());
            match feed(&mut session, &text[fed..end], &mut rows) {
                Ok(()) => fed = end,
                Err(_) if failures == 0 => failures += 1,
                Err(error) => return Err(error),
            }
        }
        assert_eq!(failures, 1);
        Ok(rows)
    });
}

fn while_rows_are_computed_again() {
    const KEPT: usize = 140;
    let headers = Extent::of_tests().choose(windowed(), 4);
    same(&headers, |model| {
        let calm = faulty(Vec::new());
        truncated(model, &calm, KEPT)?;
        // These are the next launches. A failed one is tried once more.
        let launches = calm.launches();
        let faults = (1..=4).map(|n| Fault {
            device: DeviceType::Cpu,
            op: None,
            when: When::Nth(launches + n),
            kind: FaultKind::OutOfMemory,
        });
        let mut session = truncated(model, &faulty(faults.collect()), KEPT)?;
        let (text, mut rows) = (text(CONTEXT), Vec::new());
        let mut failures = 0;
        while session.tokens().len() < CONTEXT {
            let rest = &text[session.tokens().len()..];
            match feed(&mut session, rest, &mut rows) {
                Ok(()) => {}
                Err(_) if failures < 4 => failures += 1,
                Err(error) => return Err(error),
            }
        }
        assert!(failures > 0);
        Ok(rows)
    });
}

fn faulty(faults: Vec<Fault>) -> Arc<Faulty> {
    Arc::new(Faulty::new(Arc::new(Cpu::new(1)), faults))
}

/// A session of so many tokens, whose windows have dropped what the next one sees.
fn truncated<'m>(
    model: &'m Model,
    device: &Arc<Faulty>,
    tokens: usize,
) -> Result<Session<'m>, LlmError> {
    let runtime = Runtime::new([device.clone() as Arc<dyn Backend>]);
    let mut session = Session::new(model, &runtime, options(7, DType::F32))?;
    feed(&mut session, &text(tokens), &mut Vec::new())?;
    feed(&mut session, &[5; 60], &mut Vec::new())?;
    session.truncate(tokens);
    Ok(session)
}

/// The same options with another device first.
fn first(device: DeviceType, options: SessionOptions) -> SessionOptions {
    let routing = Routing {
        device,
        ..Routing::AUTO
    };
    SessionOptions { routing, ..options }
}

pub(crate) fn on_two_devices(devices: &Devices) {
    for device in devices {
        let chosen = Extent::of_tests().choose(windowed(), 4);
        same(&chosen, |model| {
            let runtime = Runtime::new([device.clone(), Arc::new(Cpu::new(1))]);
            let mut layers = vec![DeviceType::Cpu; model.spec().layers.len()];
            layers[1..].fill(device.info().device);
            let options = SessionOptions {
                placement: Placement::of_layers(layers),
                ..options(30, DType::F32)
            };
            fed(model, &runtime, options)
        });
    }
}

/// A session from a file goes on, whatever rows it and the saved one have.
pub(crate) fn files_hold_the_window() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("session.gguf");
    let headers = Extent::of_tests().choose(windowed(), 5);
    for (saved, restored) in [(7, 7), (7, CONTEXT), (CONTEXT, 7), (50, 3)] {
        same(&headers, |model| {
            let runtime = cpu();
            let (text, mut rows) = (text(CONTEXT), Vec::new());
            let mut session = Session::new(model, &runtime, options(saved, DType::F32))?;
            feed(&mut session, &text[..100], &mut Vec::new())?;
            // A save computes what a window lacks.
            session.truncate(70);
            session.save(&path)?;
            let mut other = Session::new(model, &runtime, options(restored, DType::F32))?;
            feed(&mut other, &text[..130], &mut Vec::new())?;
            assert_eq!(other.restore(&path)?, 70);
            feed(&mut other, &text[70..120], &mut Vec::new())?;
            // Nothing before the window is in the file.
            other.truncate(60);
            feed(&mut other, &text[60..], &mut rows)?;
            Ok(rows)
        });
    }
}

/// Room in a full context is made of a session's newer half.
pub(crate) fn a_full_context_is_shifted() {
    for header in windowed() {
        let model = load(&header).unwrap();
        let (runtime, text) = (cpu(), text(CONTEXT));
        let keep = 30;
        let rest = [&text[..keep], &text[keep + (CONTEXT - keep) / 2..]].concat();
        let logits = |tokens: &[u32], batch, shifts: bool| {
            let mut session = Session::new(&model, &runtime, options(batch, DType::F32)).unwrap();
            let mut logits = Vec::new();
            session.feed(tokens, &mut logits).unwrap();
            if shifts {
                session.shift(keep, &Selection::default()).unwrap();
                assert_eq!(session.tokens(), rest);
            }
            session.feed(&[9], &mut logits).unwrap();
            logits
        };
        let found = logits(&text, 11, true);
        let difference = difference(&found, &logits(&rest, CONTEXT, false));
        assert!(difference <= NEAR, "{}: {difference:.1e}", header.name);
    }
}

/// Guesses the last tokens again, of which some are wrong.
struct Again;

impl Draft for Again {
    fn propose(&mut self, tokens: &[u32], max: usize) -> Result<Vec<u32>, LlmError> {
        let len = max.min(tokens.len());
        Ok(tokens[tokens.len() - len..].to_vec())
    }
}

fn generated(
    model: &Model,
    device: &Arc<dyn Backend>,
    batch: usize,
    speculation: Option<&mut Speculation>,
) -> Vec<u32> {
    let runtime = Runtime::new([device.clone(), Arc::new(Cpu::new(1))]);
    let options = first(device.info().device, options(batch, DType::F32));
    let mut session = Session::new(model, &runtime, options).unwrap();
    let mut sampler = SamplerChain::new(&SamplerConfig::default().temperature(0.0)).unwrap();
    let limits = GenerateOptions {
        max_tokens: Some(CONTEXT - 30),
        ignore_end: true,
        shift: None,
    };
    let on_event = |_: Event| Ok::<_, LlmError>(ControlFlow::Continue(()));
    let prompt = text(25);
    let made = generate_with(
        &mut session,
        &prompt,
        &mut sampler,
        &limits,
        speculation,
        on_event,
    );
    made.unwrap().ids
}

/// Drafts, and a device that runs ahead of the host.
pub(crate) fn texts_are_those_of_all_rows() {
    for header in Extent::of_tests().choose(windowed(), 5) {
        let model = load(&header).unwrap();
        let cpu: Arc<dyn Backend> = Arc::new(Cpu::new(1));
        let expected = generated(&model, &cpu, CONTEXT, None);
        assert_eq!(
            generated(&model, &cpu, 9, None),
            expected,
            "{}",
            header.name
        );
        let ahead = Queued::over(cpu.clone());
        assert_eq!(
            generated(&model, &ahead, 9, None),
            expected,
            "{}",
            header.name
        );
        for max in [2, 15] {
            let options = SpeculationOptions {
                max,
                min: 0,
                adaptive: false,
            };
            let mut speculation = Speculation::new(Again, options);
            let found = generated(&model, &cpu, 9, Some(&mut speculation));
            assert_eq!(found, expected, "{}: {max}", header.name);
        }
    }
}

/// More tokens than a window's rows have room for are refused in one pass.
pub(crate) fn a_pass_has_no_more_tokens_than_fit() {
    let header = &windowed()[0];
    let model = load(header).unwrap();
    let runtime = cpu();
    let mut session = Session::new(&model, &runtime, options(8, DType::F32)).unwrap();
    let mut scores: Vec<Scores> = Vec::new();
    let all = Selection::default();
    session
        .feed_and_select_each(&text(16), &all, &mut scores)
        .unwrap();
    let error = session.feed_and_select_each(&text(60), &all, &mut scores);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("60 tokens in one pass"), "{error}");
    assert_eq!(session.tokens().len(), 16);
    feed(&mut session, &text(60), &mut Vec::new()).unwrap();
}

/// Llama 4's windows are chunks of 8,192 tokens.
pub(crate) fn chunks_are_windows() {
    const CONTEXT: usize = 9000;
    let headers = headers();
    let header = headers
        .iter()
        .find(|h| h.name.starts_with("llama4"))
        .unwrap();
    let model = load(header).unwrap();
    let last = |batch: usize| {
        let options = SessionOptions {
            context: CONTEXT,
            ..options(batch, DType::F32)
        };
        let mut session = Session::new(&model, &cpu(), options).unwrap();
        let mut logits = Vec::new();
        session.feed(&text(CONTEXT), &mut logits).unwrap();
        (session.cache_bytes(), logits)
    };
    let ((whole, expected), (part, found)) = (last(1000), last(300));
    assert!(part < whole);
    let difference = difference(&found, &expected);
    assert!(difference <= NEAR, "{difference:.1e}");
}
