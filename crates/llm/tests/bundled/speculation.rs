//! Tokens that are guessed and checked: the text is the one that comes without.

use std::ops::ControlFlow;
use std::sync::Arc;

use rustorch_cpu::Cpu;
use rustorch_faulty::{Fault, FaultKind, Faulty, When};
use rustorch_gguf::{Array, Gguf, GgufWriter, Metadata, Value};
use rustorch_grammar::{Grammar, Vocabulary};
use rustorch_llm::sampler::{SamplerChain, SamplerConfig};
use rustorch_llm::{
    Draft, Event, GenerateOptions, Generated, LlmError, Model, ModelDraft, NgramDraft, Scores,
    Selection, Session, SessionOptions, Speculation, SpeculationOptions, Stop, generate_with,
};
use rustorch_runtime::{Backend, Runtime};
use rustorch_testing::queued::Queued;

use crate::common::load;

const PROMPT: [u32; 5] = [0, 48, 1299, 602, 260];
const CONTEXT: usize = 96;
const TOKENS: usize = 40;

fn cpu() -> Arc<dyn Backend> {
    Arc::new(Cpu::new(2))
}

fn session<'m>(model: &'m Model, runtime: &Runtime, context: usize) -> Session<'m> {
    let options = SessionOptions {
        context,
        ..SessionOptions::default()
    };
    Session::new(model, runtime, options).unwrap()
}

fn greedy() -> SamplerConfig {
    SamplerConfig::default().temperature(0.0)
}

/// The most guesses, whatever they cost. The clock must not decide in tests.
fn always(max: usize) -> SpeculationOptions {
    SpeculationOptions {
        max,
        min: 0,
        adaptive: false,
    }
}

fn limit(tokens: usize) -> GenerateOptions {
    GenerateOptions {
        max_tokens: Some(tokens),
        ignore_end: true,
        shift: None,
    }
}

/// Goes on with the text of a session.
fn go_on(
    session: &mut Session,
    prompt: &[u32],
    sampler: &mut SamplerChain,
    limits: &GenerateOptions,
    speculation: Option<&mut Speculation>,
) -> Generated {
    let on_event = |_| Ok::<_, LlmError>(ControlFlow::Continue(()));
    generate_with(session, prompt, sampler, limits, speculation, on_event).unwrap()
}

/// The generated text, and the session's tokens after it.
fn tell(
    model: &Model,
    config: &SamplerConfig,
    limits: &GenerateOptions,
    speculation: Option<&mut Speculation>,
) -> (Generated, Vec<u32>) {
    let mut session = session(model, &Runtime::new([cpu()]), CONTEXT);
    let mut sampler = SamplerChain::new(config).unwrap();
    let told = go_on(&mut session, &PROMPT, &mut sampler, limits, speculation);
    (told, session.tokens().to_vec())
}

/// Knows the text, but guesses wrong at every so many tokens.
struct Oracle {
    text: Vec<u32>,
    wrong: usize,
}

impl Oracle {
    /// An oracle that knows the text generated without guesses.
    fn new(model: &Model, wrong: usize) -> Self {
        let (told, _) = tell(model, &greedy(), &limit(TOKENS + 20), None);
        let text = [&PROMPT[..], &told.ids].concat();
        Self { text, wrong }
    }
}

impl Draft for Oracle {
    fn propose(&mut self, tokens: &[u32], max: usize) -> Result<Vec<u32>, LlmError> {
        let behind = self.text.iter().enumerate().skip(tokens.len()).take(max);
        let guess = |(i, &id): (usize, &u32)| if i % self.wrong == 0 { id ^ 1 } else { id };
        Ok(behind.map(guess).collect())
    }
}

/// Behind more keys than the CPU's attention has in one part.
pub(crate) fn up_to_eight_tokens_at_once_have_the_logits_of_each_alone() {
    let text: Vec<u32> = (0..264).map(|i| 2 + (i * 7919) % 4000).collect();
    let all = Selection::default();
    for name in ["f16", "Q8_0", "Q4_K_M"] {
        let model = load(name);
        let runtime = Runtime::new([cpu()]);
        let session = || {
            let mut session = session(&model, &runtime, 512);
            session.feed(&PROMPT, &mut Vec::new()).unwrap();
            session
        };
        let (mut alone, mut scores) = (session(), Vec::new());
        let mut each = |id: &u32| {
            let fed = alone.feed_and_select_each(&[*id], &all, &mut scores);
            fed.unwrap();
            scores[0].logits.clone()
        };
        let expected: Vec<Vec<f32>> = text.iter().map(&mut each).collect();
        for few in [2, 3, 4, 5, 8] {
            let (mut together, mut scores) = (session(), Vec::<Scores>::new());
            for (ids, expected) in text.chunks_exact(few).zip(expected.chunks_exact(few)) {
                let fed = together.feed_and_select_each(ids, &all, &mut scores);
                fed.unwrap();
                let same = scores.iter().map(|scores| &scores.logits).eq(expected);
                assert!(same, "{name}: {few} behind {}", together.tokens().len());
            }
        }
    }
}

/// With every sampler that has a memory, or draws.
pub(crate) fn guesses_change_no_text() {
    let (model, small) = (load("f16"), load("Q4_K_M"));
    let seeded = SamplerConfig {
        seed: Some(7),
        ..SamplerConfig::default()
    };
    let configs = [
        greedy(),
        seeded.clone(),
        greedy().repeat_penalty(1.3).frequency_penalty(0.2),
        SamplerConfig {
            logit_bias: vec![(260, -2.0), (13, 1.5)],
            ..seeded.clone()
        }
        .dry_multiplier(0.8),
        seeded.mirostat(2).mirostat_tau(3.0).mirostat_eta(0.1),
    ];
    let runtime = Runtime::new([cpu()]);
    for config in configs {
        let limits = limit(TOKENS);
        let expected = tell(&model, &config, &limits, None);
        for max in [1, 2, 3] {
            let target = session(&model, &runtime, CONTEXT);
            for p_min in [0.0, 0.5] {
                let draft = session(&small, &runtime, CONTEXT);
                let draft = ModelDraft::new(draft, &target, p_min).unwrap();
                let mut speculation = Speculation::new(draft, always(max));
                let (told, tokens) = tell(&model, &config, &limits, Some(&mut speculation));
                assert_eq!(told.ids, expected.0.ids, "{max} of a model: {config:?}");
                assert_eq!(tokens, expected.1);
                assert!(told.speculation.accepted > 0, "{config:?}");
            }
            let mut speculation = Speculation::new(NgramDraft::new(1), always(max));
            let (told, tokens) = tell(&model, &config, &limits, Some(&mut speculation));
            assert_eq!(told.ids, expected.0.ids, "{max} of the text: {config:?}");
            assert_eq!(tokens, expected.1);
            assert!(told.speculation.drafted > 0, "{config:?}");
        }
        // By the clock, which may find anything.
        let mut speculation = Speculation::new(NgramDraft::new(1), SpeculationOptions::default());
        let (told, _) = tell(&model, &config, &limits, Some(&mut speculation));
        assert_eq!(told.ids, expected.0.ids, "adaptive: {config:?}");
    }
}

pub(crate) fn guesses_and_what_becomes_of_them_are_counted() {
    let model = load("Q4_K_M");
    let (expected, _) = tell(&model, &greedy(), &limit(TOKENS + 1), None);
    let mut right = Speculation::new(Oracle::new(&model, usize::MAX), always(3));
    let (told, _) = tell(&model, &greedy(), &limit(TOKENS + 1), Some(&mut right));
    assert_eq!(told.ids, expected.ids);
    assert_eq!(told.decode.tokens, expected.decode.tokens);
    // Behind the prompt's token, passes bring four each.
    let stats = told.speculation;
    assert_eq!(stats.passes, TOKENS / 4);
    assert_eq!(
        (stats.drafted, stats.accepted),
        (TOKENS / 4 * 3, TOKENS / 4 * 3)
    );
    assert_eq!(stats.acceptance(), Some(1.0));
    let mut wrong = Speculation::new(Oracle::new(&model, 1), always(3));
    let (told, _) = tell(&model, &greedy(), &limit(TOKENS + 1), Some(&mut wrong));
    assert_eq!(told.ids, expected.ids);
    assert_eq!(told.speculation.accepted, 0);
    // No guesses go beyond the limit.
    let drafted = (TOKENS - 3) * 3 + 2 + 1;
    assert_eq!(told.speculation.drafted, drafted);
    // Each text has counts of its own.
    let (told, _) = tell(&model, &greedy(), &limit(1), Some(&mut wrong));
    assert_eq!(told.speculation.drafted, 0);
}

/// At every token: the limit, the caller, and the end of the context.
pub(crate) fn a_text_ends_within_guesses_as_without() {
    let model = load("Q4_K_M");
    let runtime = Runtime::new([cpu()]);
    for wrong in [usize::MAX, 3] {
        let oracle = || Speculation::new(Oracle::new(&model, wrong), always(3));
        let mut speculation = oracle();
        for tokens in 0..10 {
            let expected = tell(&model, &greedy(), &limit(tokens), None);
            let told = tell(&model, &greedy(), &limit(tokens), Some(&mut speculation));
            assert_eq!((told.0.ids, told.1), (expected.0.ids, expected.1));
            let ended = |speculation: Option<&mut Speculation>| {
                let mut session = session(&model, &runtime, PROMPT.len() + tokens);
                let mut sampler = SamplerChain::new(&greedy()).unwrap();
                let limits = limit(TOKENS);
                let told = go_on(&mut session, &PROMPT, &mut sampler, &limits, speculation);
                assert_eq!(told.stop, Stop::Context);
                (told.ids, session.tokens().to_vec())
            };
            assert_eq!(ended(Some(&mut speculation)), ended(None));
            let stopped = |speculation: Option<&mut Speculation>| {
                let mut session = session(&model, &runtime, CONTEXT);
                let mut sampler = SamplerChain::new(&greedy()).unwrap();
                let mut heard = Vec::new();
                let on_event = |event| {
                    if let Event::Token(id) = event {
                        heard.push(id);
                    }
                    Ok::<_, LlmError>(match heard.len() > tokens {
                        true => ControlFlow::Break(()),
                        false => ControlFlow::Continue(()),
                    })
                };
                let limits = limit(TOKENS);
                let (session_, sampler) = (&mut session, &mut sampler);
                let told =
                    generate_with(session_, &PROMPT, sampler, &limits, speculation, on_event);
                assert_eq!(told.unwrap().stop, Stop::Caller);
                (heard, session.tokens().to_vec())
            };
            assert_eq!(stopped(Some(&mut speculation)), stopped(None));
        }
    }
}

pub(crate) fn a_full_context_is_shifted_within_guesses() {
    let (model, small) = (load("Q4_K_M"), load("f16"));
    let runtime = Runtime::new([cpu()]);
    for context in 24..28 {
        let limits = GenerateOptions {
            shift: Some(4),
            ..limit(TOKENS)
        };
        let told = |speculation: Option<&mut Speculation>| {
            let mut session = session(&model, &runtime, context);
            let mut sampler = SamplerChain::new(&greedy()).unwrap();
            let told = go_on(&mut session, &PROMPT, &mut sampler, &limits, speculation);
            assert_eq!(told.stop, Stop::Limit);
            (told.ids, session.tokens().to_vec())
        };
        let expected = told(None);
        let mut ngrams = Speculation::new(NgramDraft::new(1), always(3));
        assert_eq!(told(Some(&mut ngrams)), expected);
        let target = session(&model, &runtime, context);
        let draft = session(&small, &runtime, context);
        let draft = ModelDraft::new(draft, &target, 0.0).unwrap();
        let mut speculation = Speculation::new(draft, always(3));
        assert_eq!(told(Some(&mut speculation)), expected);
    }
}

/// A form that has guesses wrong, and ends the text between some that are right.
pub(crate) fn a_form_is_held_to() {
    let model = load("Q4_K_M");
    let vocabulary = Vocabulary::new(model.tokenizer().unwrap()).unwrap();
    let runtime = Runtime::new([cpu()]);
    let limits = GenerateOptions {
        ignore_end: false,
        ..limit(TOKENS)
    };
    for pattern in ["( [a-z]+){6}", "( (the|a|king|queen|of))+\\.", "[0-9]{5}"] {
        let grammar = Grammar::Regex(pattern.to_owned());
        let told = |speculation: Option<&mut Speculation>| {
            let mut session = session(&model, &runtime, CONTEXT);
            let mut sampler = SamplerChain::new(&greedy()).unwrap();
            sampler.constrain(grammar.constrain(&vocabulary).unwrap());
            let told = go_on(&mut session, &PROMPT, &mut sampler, &limits, speculation);
            (told.ids, told.stop, session.tokens().to_vec())
        };
        let expected = told(None);
        // The oracle guesses the text that the form gives, then the text without the form.
        let known = [&PROMPT[..], &expected.0, &[7; 8]].concat();
        let texts = [known, Oracle::new(&model, usize::MAX).text];
        for text in texts {
            let oracle = Oracle {
                text,
                wrong: usize::MAX,
            };
            let mut speculation = Speculation::new(oracle, always(3));
            assert_eq!(told(Some(&mut speculation)), expected, "{pattern}");
        }
    }
}

/// A conversation's next turn, and a file: what was guessed wrong has left no trace.
pub(crate) fn a_session_goes_on_behind_guesses() {
    let model = load("Q4_K_M");
    let runtime = Runtime::new([cpu()]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("session.gguf");
    let turns = |mut speculation: Option<Speculation>| {
        let mut first = session(&model, &runtime, CONTEXT);
        let mut sampler = SamplerChain::new(&greedy()).unwrap();
        let limits = limit(11);
        go_on(
            &mut first,
            &PROMPT,
            &mut sampler,
            &limits,
            speculation.as_mut(),
        );
        first.save(&path).unwrap();
        let mut second = session(&model, &runtime, CONTEXT);
        second.restore(&path).unwrap();
        let next = [first.tokens(), &[31, 555]].concat();
        [&mut first, &mut second].map(|session| {
            let kept = session.keep_prefix(&next);
            let mut sampler = SamplerChain::new(&greedy()).unwrap();
            let prompt = &next[kept..];
            let told = go_on(session, prompt, &mut sampler, &limits, speculation.as_mut());
            (kept, told.ids)
        })
    };
    let expected = turns(None);
    for wrong in [2, 3, usize::MAX] {
        let oracle = Oracle::new(&model, wrong);
        assert_eq!(turns(Some(Speculation::new(oracle, always(3)))), expected);
    }
    let ngrams = NgramDraft::new(1);
    assert_eq!(turns(Some(Speculation::new(ngrams, always(3)))), expected);
}

/// A text that goes round in circles.
pub(crate) fn what_repeats_itself_is_guessed_right() {
    let model = load("Q4_K_M");
    let told = |speculation: Option<&mut Speculation>| {
        let mut session = session(&model, &Runtime::new([cpu()]), 256);
        let mut sampler = SamplerChain::new(&greedy()).unwrap();
        let prompt: Vec<u32> = PROMPT.iter().copied().cycle().take(100).collect();
        go_on(&mut session, &prompt, &mut sampler, &limit(60), speculation)
    };
    let expected = told(None);
    let mut speculation = Speculation::new(NgramDraft::new(3), always(3));
    let found = told(Some(&mut speculation));
    assert_eq!(found.ids, expected.ids);
    assert!(found.speculation.accepted > 0, "{:?}", found.speculation);
}

/// A device that chooses tokens by itself and runs ahead has begun passes for nothing where others are
/// guessed.
pub(crate) fn a_device_that_runs_ahead_tells_the_same_with_guesses() {
    let (model, small) = (load("Q4_K_M"), load("f16"));
    let (expected, _) = tell(&model, &greedy(), &limit(TOKENS), None);
    let runtime = Runtime::new([Queued::over(cpu())]);
    let told = |speculation: &mut Speculation| {
        let mut session = session(&model, &runtime, CONTEXT);
        let mut sampler = SamplerChain::new(&greedy()).unwrap();
        let limits = limit(TOKENS);
        go_on(
            &mut session,
            &PROMPT,
            &mut sampler,
            &limits,
            Some(speculation),
        )
        .ids
    };
    let mut ngrams = Speculation::new(NgramDraft::new(2), always(3));
    assert_eq!(told(&mut ngrams), expected.ids);
    let target = session(&model, &runtime, CONTEXT);
    let draft = session(&small, &runtime, CONTEXT);
    let draft = ModelDraft::new(draft, &target, 0.0).unwrap();
    assert_eq!(told(&mut Speculation::new(draft, always(3))), expected.ids);
}

/// The device is lost while guessing, while checking, and at other launches.
pub(crate) fn losing_the_device_changes_no_text() {
    let (model, small) = (load("f16"), load("Q4_K_M"));
    let told = |nth| {
        let fault = Fault {
            device: cpu().info().device,
            op: None,
            when: When::Nth(nth),
            kind: FaultKind::Lost,
        };
        let faulty = Arc::new(Faulty::new(cpu(), [fault]));
        let runtime = Runtime::new([faulty.clone() as Arc<dyn Backend>, cpu()]);
        let mut target = session(&model, &runtime, CONTEXT);
        let draft = session(&small, &runtime, CONTEXT);
        let draft = ModelDraft::new(draft, &target, 0.0).unwrap();
        let mut speculation = Speculation::new(draft, always(3));
        let mut sampler = SamplerChain::new(&greedy()).unwrap();
        let limits = limit(12);
        let told = go_on(
            &mut target,
            &PROMPT,
            &mut sampler,
            &limits,
            Some(&mut speculation),
        );
        (told.ids, faulty.launches(), runtime.fallbacks().len())
    };
    let (expected, _) = tell(&model, &greedy(), &limit(12), None);
    let (ids, launches, fallbacks) = told(u64::MAX);
    assert_eq!((ids, fallbacks), (expected.ids.clone(), 0));
    for nth in (1..launches).step_by(launches as usize / 12) {
        let (ids, _, fallbacks) = told(nth);
        assert_eq!(ids, expected.ids, "launch {nth} of {launches}");
        assert!(fallbacks > 0, "launch {nth}");
    }
}

/// The model with other metadata.
fn altered(model: &Model, change: impl FnOnce(&mut Metadata)) -> Model {
    let file = model.gguf();
    let mut metadata = file.metadata.clone();
    change(&mut metadata);
    let mut writer = GgufWriter::new(metadata);
    for tensor in file.tensors() {
        let (dims, ty) = (tensor.dims.clone(), tensor.ty);
        writer.add_tensor(&tensor.name, dims, ty).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("altered.gguf");
    let written = writer.write(&path, |tensor, out| {
        out.write_all(file.data(file.tensor(&tensor.name).unwrap()))
    });
    written.unwrap();
    Model::load(Gguf::from_bytes(std::fs::read(path).unwrap()).unwrap()).unwrap()
}

pub(crate) fn drafts_that_do_not_fit_are_refused() {
    let model = load("Q4_K_M");
    let runtime = Runtime::new([cpu()]);
    let target = session(&model, &runtime, CONTEXT);
    let refused = |draft: &Model, context: usize, why: &str| {
        let draft = session(draft, &runtime, context);
        match ModelDraft::new(draft, &target, 0.0).map(drop) {
            Err(LlmError::Draft(problem)) => assert!(problem.contains(why), "{problem}"),
            other => panic!("{other:?}, not {why}"),
        }
    };
    refused(
        &model,
        CONTEXT - 1,
        "room for 95 tokens, the model's for 96",
    );
    let renamed = altered(&model, |metadata| {
        let Some(Value::Array(Array::String(tokens))) = metadata.get("tokenizer.ggml.tokens")
        else {
            panic!("no tokens");
        };
        let mut tokens = tokens.clone();
        tokens[4095] = "another".to_owned();
        metadata.insert("tokenizer.ggml.tokens", Value::Array(Array::String(tokens)));
    });
    refused(
        &renamed,
        CONTEXT,
        "its token 4095 is \"another\", the model's ",
    );
    let silent = altered(&model, |metadata| {
        metadata.insert("tokenizer.ggml.model", "no_vocab");
    });
    refused(&silent, CONTEXT, "it has no vocabulary");
}
