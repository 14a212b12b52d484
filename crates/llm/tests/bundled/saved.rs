//! Sessions that go on: in a file, with the beginning they have in common, in a context that is full.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use rustorch_cpu::Cpu;
use rustorch_gguf::{Array, Gguf, GgufWriter, Metadata, Value};
use rustorch_ir::DType;
use rustorch_llm::sampler::{SamplerChain, SamplerConfig};
use rustorch_llm::{
    Event, GenerateOptions, LlmError, Model, Session, SessionOptions, Stop, generate,
};
use rustorch_runtime::{Backend, Runtime};

use crate::common::{first, gpus, load};

const PROMPT: [u32; 7] = [0, 48, 1299, 602, 260, 31, 555];
const CONTEXT: usize = 40;

fn cpu() -> Arc<dyn Backend> {
    Arc::new(Cpu::new(1))
}

fn options() -> SessionOptions {
    SessionOptions {
        context: CONTEXT,
        ..SessionOptions::default()
    }
}

/// The scores behind the first tokens, and behind all of them.
fn scores(session: &mut Session, tokens: &[u32]) -> Vec<f32> {
    let mut logits = Vec::new();
    session.feed(tokens, &mut logits).unwrap();
    logits
}

/// On every device, for every type of cache: a session from a file gives the scores of the one that
/// was saved, bit by bit.
pub(crate) fn a_saved_session_goes_on_where_it_was() {
    let model = load("Q4_K_M");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("session.gguf");
    for device in gpus().into_iter().chain([cpu()]) {
        let runtime = Runtime::new([device.clone(), cpu()]);
        for cache_dtype in [DType::F16, DType::F32] {
            let options = SessionOptions {
                cache_dtype,
                routing: first(&device),
                ..options()
            };
            let mut session = Session::new(&model, &runtime, options.clone()).unwrap();
            scores(&mut session, &PROMPT[..5]);
            session.save(&path).unwrap();
            let expected = scores(&mut session, &PROMPT[5..]);
            let mut other = Session::new(&model, &runtime, options.clone()).unwrap();
            // One that has programs and tokens of its own already.
            scores(&mut other, &PROMPT[2..4]);
            assert_eq!(other.restore(&path).unwrap(), 5);
            assert_eq!(other.tokens(), &PROMPT[..5]);
            assert_eq!(
                scores(&mut other, &PROMPT[5..]),
                expected,
                "{}",
                device.info().device
            );
        }
    }
}

/// The file with some metadata changed, and a part of its tensors.
fn altered(path: &Path, change: impl Fn(&mut Metadata), tensors: usize) -> std::path::PathBuf {
    let file = Gguf::open(path).unwrap();
    let mut metadata = file.metadata.clone();
    change(&mut metadata);
    let mut writer = GgufWriter::new(metadata);
    for tensor in &file.tensors()[..tensors] {
        writer
            .add_tensor(&tensor.name, tensor.dims.clone(), tensor.ty)
            .unwrap();
    }
    let to = path.with_extension("altered");
    let written = writer.write(&to, |tensor, out| {
        out.write_all(file.data(file.tensor(&tensor.name).unwrap()))
    });
    written.unwrap();
    to
}

fn refused(model: &Model, options: SessionOptions, path: &Path, why: &str) {
    let runtime = Runtime::new([cpu()]);
    let mut session = Session::new(model, &runtime, options).unwrap();
    let (before, last) = PROMPT.split_at(PROMPT.len() - 1);
    scores(&mut session, before);
    let expected = scores(&mut session, last);
    session.truncate(before.len());
    let error = session.restore(path).unwrap_err().to_string();
    assert!(error.contains(why), "{error}, not {why}");
    assert!(error.contains(&path.display().to_string()), "{error}");
    // It is as it was.
    assert_eq!(session.tokens(), before);
    assert_eq!(scores(&mut session, last), expected);
}

pub(crate) fn files_that_do_not_fit_are_refused() {
    let model = load("Q4_K_M");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("session.gguf");
    let runtime = Runtime::new([cpu()]);
    let mut session = Session::new(&model, &runtime, options()).unwrap();
    scores(&mut session, &PROMPT);
    session.save(&path).unwrap();

    refused(&load("f16"), options(), &path, "saved with another model");
    let narrow = SessionOptions {
        context: 10,
        ..options()
    };
    let long = folder.path().join("long.gguf");
    scores(&mut session, &PROMPT);
    session.save(&long).unwrap();
    refused(
        &model,
        narrow,
        &long,
        "14 tokens do not fit the context of 10",
    );
    let other = SessionOptions {
        cache_dtype: DType::F32,
        ..options()
    };
    refused(&model, other, &path, "its cache is of F16, this one of F32");

    let all = Gguf::open(&path).unwrap().tensors().len();
    let damage = |change: &dyn Fn(&mut Metadata), tensors, why| {
        let to = altered(&path, change, tensors);
        refused(&model, options(), &to, why);
    };
    damage(
        &|m| drop(m.insert("general.architecture", "llama")),
        all,
        "not a saved session",
    );
    damage(
        &|m| drop(m.insert("session.version", 9u32)),
        all,
        "version 9",
    );
    damage(&|m| drop(m.remove("session.tokens")), all, "session.tokens");
    damage(
        &|m| drop(m.insert("session.tokens", Value::Array(Array::U32(vec![1 << 30; 7])))),
        all,
        "token 1073741824 is outside",
    );
    damage(
        &|m| drop(m.insert("session.batches", Value::Array(Array::U32(vec![3])))),
        all,
        "does not add up",
    );
    damage(&|_| (), all - 1, "no tensor");
    std::fs::write(&path, b"GGUF").unwrap();
    let mut session = Session::new(&model, &runtime, options()).unwrap();
    assert!(matches!(session.restore(&path), Err(LlmError::Gguf(_))));
}

/// The common beginning of two texts is not computed again, and the results are the same.
pub(crate) fn a_common_beginning_is_kept() {
    let model = load("Q4_K_M");
    let runtime = Runtime::new([cpu()]);
    let mut session = Session::new(&model, &runtime, options()).unwrap();
    scores(&mut session, &PROMPT[..4]);
    let other = [&PROMPT[..3], &[260, 31]].concat();
    assert_eq!(session.keep_prefix(&other), 3);
    let kept = scores(&mut session, &other[3..]);
    let mut anew = Session::new(&model, &runtime, options()).unwrap();
    scores(&mut anew, &other[..3]);
    assert_eq!(kept, scores(&mut anew, &other[3..]));
    // The last token of the same text is fed again.
    assert_eq!(session.keep_prefix(&other), 4);
    assert_eq!(session.keep_prefix(&[]), 0);
}

/// In a full context, generating goes on from the beginning and the newer half, as from a prompt of
/// these.
pub(crate) fn a_full_context_is_shifted() {
    const KEEP: usize = 4;
    let model = load("Q4_K_M");
    let runtime = Runtime::new([cpu()]);
    let mut session = Session::new(&model, &runtime, options()).unwrap();
    let best = SamplerConfig::default().temperature(0.0);
    let mut sampler = SamplerChain::new(&best).unwrap();
    let limits = GenerateOptions {
        max_tokens: Some(CONTEXT),
        ignore_end: true,
        shift: Some(KEEP),
    };
    let mut at = Vec::new();
    let mut told = Vec::new();
    let generated = generate(&mut session, &PROMPT, &mut sampler, &limits, |event| {
        match event {
            Event::Shifted { dropped } => at.push((told.len(), dropped)),
            Event::Token(id) => told.push(id),
            Event::Prompt { .. } | Event::Full => {}
        }
        Ok::<_, LlmError>(ControlFlow::Continue(()))
    });
    assert_eq!(generated.unwrap().stop, Stop::Limit);
    // All but the token that was generated last are in the context when it is full.
    assert_eq!(at, [(CONTEXT - PROMPT.len() + 1, (CONTEXT - KEEP) / 2)]);
    let (before, dropped) = at[0];
    let all = [&PROMPT[..], &told[..before]].concat();
    let prompt = [&all[..KEEP], &all[KEEP + dropped..]].concat();
    let mut session = Session::new(&model, &runtime, options()).unwrap();
    let mut sampler = SamplerChain::new(&best).unwrap();
    let limits = GenerateOptions {
        max_tokens: Some(told.len() - before),
        ignore_end: true,
        shift: None,
    };
    let rest = generate(&mut session, &prompt, &mut sampler, &limits, |_| {
        Ok::<_, LlmError>(ControlFlow::Continue(()))
    });
    assert_eq!(told[before..], rest.unwrap().ids);
}
