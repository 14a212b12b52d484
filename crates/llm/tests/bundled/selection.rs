//! Devices select the same tokens from the logits as the sampler would from all of them.

use std::ops::ControlFlow;
use std::sync::Arc;

use rustorch_cpu::Cpu;
use rustorch_faulty::{Fault, FaultKind, Faulty, When};
use rustorch_gguf::Gguf;
use rustorch_llm::sampler::{SamplerChain, SamplerConfig};
use rustorch_llm::{GenerateOptions, LlmError, Model, Scores, Session, SessionOptions};
use rustorch_runtime::{Backend, Runtime};

use crate::common::{first, gpus, load, models};

const PROMPT: [u32; 5] = [0, 48, 1299, 602, 260];
const TOKENS: usize = 12;

/// Chains with how many of the best tokens they need.
fn chains() -> Vec<(SamplerConfig, Option<usize>)> {
    let base = SamplerConfig {
        seed: Some(42),
        ..SamplerConfig::default()
    };
    let greedy = base.clone().temperature(0.0);
    let hot = |top_k| {
        base.clone()
            .top_k(top_k)
            .top_p(1.0)
            .min_p(0.0)
            .temperature(3.0)
    };
    let typical = greedy.clone().typical_p(0.6);
    let penalised = greedy.clone().repeat_penalty(1.3);
    vec![
        (greedy, Some(1)),
        (base.clone(), Some(40)),
        (hot(1), Some(1)),
        (hot(300), Some(300)),
        (hot(0), None),
        (typical, Some(40)),
        (penalised, None),
    ]
}

/// Tokens that are chosen, each from what the chain asks for or from the logits of all.
fn tokens(
    model: &Model,
    runtime: &Runtime,
    options: &SessionOptions,
    sampler: &mut SamplerChain,
    selects: bool,
) -> Vec<u32> {
    let mut session = Session::new(model, runtime, options.clone()).unwrap();
    let (selection, mut scores) = (sampler.selection(), Scores::default());
    let mut fed = PROMPT.to_vec();
    for _ in 0..TOKENS {
        let token = match selects {
            true => {
                session
                    .feed_and_select(&fed, &selection, &mut scores)
                    .unwrap();
                assert_eq!(scores.logits.len(), selection.best.unwrap_or(4096));
                sampler.choose(&scores).unwrap()
            }
            false => {
                session.feed(&fed, &mut scores.logits).unwrap();
                sampler.sample(&scores.logits).unwrap()
            }
        };
        sampler.accept(token);
        fed = vec![token];
    }
    session.tokens()[PROMPT.len()..].to_vec()
}

fn options(backend: &Arc<dyn Backend>) -> SessionOptions {
    SessionOptions {
        context: PROMPT.len() + TOKENS,
        routing: first(backend),
        ..SessionOptions::default()
    }
}

pub(crate) fn devices_choose_what_the_host_would_choose() {
    let model = load("Q4_K_M");
    let cpu: Arc<dyn Backend> = Arc::new(Cpu::new(2));
    for backend in [cpu].into_iter().chain(gpus()) {
        let runtime = Runtime::new([backend.clone()]);
        for (config, best) in chains() {
            let choose = |selects, banned: &[u32]| {
                let mut sampler = SamplerChain::new(&config).unwrap();
                sampler.ban(banned);
                assert_eq!(sampler.selection().best, best);
                tokens(&model, &runtime, &options(&backend), &mut sampler, selects)
            };
            let (device, what) = (backend.info().device, format!("{config:?}"));
            let expected = choose(false, &[]);
            assert_eq!(choose(true, &[]), expected, "{device}: {what}");
            // Two tokens that would come may not.
            let banned = [expected[0], expected[5]];
            let others = choose(false, &banned);
            assert!(banned.iter().all(|id| !others.contains(id)));
            assert_eq!(choose(true, &banned), others, "{device}: {what}");
        }
        assert!(runtime.fallbacks().is_empty());
    }
}

/// Tokens that `tokenizer.ggml.suppress_tokens` lists never come, whatever the chain and the options are.
pub(crate) fn suppressed_tokens_are_never_chosen() {
    let cpu: Arc<dyn Backend> = Arc::new(Cpu::new(2));
    let runtime = Runtime::new([cpu.clone()]);
    let generate = |config: &SamplerConfig, ignore_end, suppressed: &[i32]| {
        let mut gguf = Gguf::open(models().join("classics-13m-Q4_K_M.gguf")).unwrap();
        let key = "tokenizer.ggml.suppress_tokens";
        gguf.metadata.insert(key, suppressed.to_vec());
        let model = Model::load(gguf).unwrap();
        let mut sampler = SamplerChain::new(config).unwrap();
        let mut session = Session::new(&model, &runtime, options(&cpu)).unwrap();
        let limits = GenerateOptions {
            max_tokens: Some(TOKENS),
            ignore_end,
            ..GenerateOptions::default()
        };
        let go_on = |_| Ok::<_, LlmError>(ControlFlow::Continue(()));
        rustorch_llm::generate(&mut session, &PROMPT, &mut sampler, &limits, go_on)
            .unwrap()
            .ids
    };
    for (config, _) in chains() {
        for ignore_end in [false, true] {
            let free = generate(&config, ignore_end, &[]);
            let suppressed = [free[0] as i32, -1, free[1] as i32, 1 << 20];
            let others = generate(&config, ignore_end, &suppressed);
            let kept = !others.contains(&free[0]) && !others.contains(&free[1]);
            assert!(kept, "{config:?}: {free:?}, {others:?}");
        }
    }
}

pub(crate) fn losing_the_device_changes_no_choice() {
    let model = load("Q4_K_M");
    let cpu: Arc<dyn Backend> = Arc::new(Cpu::new(1));
    for (config, _) in chains() {
        let choose = |nth| {
            let fault = Fault {
                device: cpu.info().device,
                op: None,
                when: When::Nth(nth),
                kind: FaultKind::Lost,
            };
            let faulty: Arc<dyn Backend> = Arc::new(Faulty::new(cpu.clone(), [fault]));
            let runtime = Runtime::new([faulty, cpu.clone()]);
            let mut sampler = SamplerChain::new(&config).unwrap();
            let told = tokens(&model, &runtime, &options(&cpu), &mut sampler, true);
            (told, runtime.fallbacks().len())
        };
        let (expected, fallbacks) = choose(u64::MAX);
        assert_eq!(fallbacks, 0);
        assert_eq!(choose(500), (expected, 1), "{config:?}");
    }
}
