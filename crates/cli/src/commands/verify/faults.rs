//! A device that fails in the middle of a text: the text does not change.

use std::ops::RangeInclusive;
use std::sync::Arc;

use anyhow::Result;
use rustorch_cpu::Cpu;
use rustorch_faulty::{Fault, FaultKind, Faulty, When};
use rustorch_llm::golden::{Bounds, Golden, largest};
use rustorch_llm::{Model, Session, SessionOptions};
use rustorch_runtime::{Backend, Fallback, Routing, Runtime};
use tracing::subscriber::{NoSubscriber, with_default};

use super::findings::{Figure, Findings, Row};
use crate::{bundled, progress};

/// Tokens of the text.
const TOKENS: usize = 3;

/// A text made on a device that may fail.
struct Text {
    tokens: Vec<u32>,
    /// Kernel launches of the device after the prompt, and after each token.
    launches: Vec<u64>,
    fallbacks: Vec<Fallback>,
}

/// Lets a device fail in every way at some kernels; with `full`, at every kernel of a token.
pub(super) fn check(backend: &Arc<dyn Backend>, model: &Model, full: bool) -> Findings {
    let mut findings = Findings {
        did: format!(
            "The device generates {TOKENS} tokens after a prompt, with the CPU as fallback. Each \
             run injects a failure before one kernel. The tokens must stay the same. There must \
             be exactly one fallback, of the right class and with the device that takes over."
        ),
        ..Findings::default()
    };
    // These failures are intended, so their warnings are suppressed.
    let quiet = NoSubscriber::default();
    match with_default(quiet, || try_all(backend, model, full)) {
        Ok((rows, kernels)) => {
            let tried = rows.first().map_or(0.0, |row| row.figures[0].value);
            findings.rows = rows;
            findings.left_out = vec![format!(
                "the other {} of {kernels} kernels{}",
                kernels as f64 - tried,
                if full {
                    ""
                } else {
                    " (--full tries every kernel of a token)"
                }
            )];
        }
        Err(e) => findings
            .rows
            .push(Row::failed("without a fault", format!("{e:#}"))),
    }
    findings
}

/// A row for each kind of fault, and the number of kernels there are.
fn try_all(backend: &Arc<dyn Backend>, model: &Model, full: bool) -> Result<(Vec<Row>, u64)> {
    let prompt = prompt()?;
    let make = |n, kind| generate(backend, model, &prompt, n, kind);
    let healthy = make(u64::MAX, FaultKind::Lost)?;
    let (after_prompt, all) = (healthy.launches[0], healthy.launches[TOKENS]);
    // The second token: its program has been used before, and its cache holds a history.
    let token: RangeInclusive<u64> = healthy.launches[1] + 1..=healthy.launches[2];
    let mut kernels = vec![1, after_prompt.div_ceil(2), after_prompt + 1, all];
    match full {
        true => kernels.extend(token),
        false => kernels.push(u64::midpoint(*token.start(), *token.end())),
    }
    kernels.sort_unstable();
    kernels.dedup();
    let bar = progress::steps("faults", kernels.len() * FaultKind::FAILURES.len());
    let mut rows = Vec::new();
    for kind in FaultKind::FAILURES {
        let mut problems = Vec::new();
        let mut answers: Vec<String> = Vec::new();
        for &n in &kernels {
            match make(n, kind) {
                Ok(text) => {
                    let problem = problem(&text, &healthy, kind);
                    problems.extend(problem.map(|p| format!("at kernel {n}: {p}")));
                    for Fallback { error, to } in text.fallbacks {
                        let to = to.map_or("nowhere".to_owned(), |to| to.to_string());
                        let answer = format!("{}, now on {to}", error.class);
                        if !answers.contains(&answer) {
                            answers.push(answer);
                        }
                    }
                }
                Err(e) => problems.push(format!("at kernel {n}: {e:#}")),
            }
            bar.inc(1);
        }
        let figures = vec![Figure::count("kernels tried", kernels.len())];
        let row = Row::passed(kind.name(), figures).remark(answers.join("; "));
        rows.push(row.judged(problems));
    }
    bar.finish_and_clear();
    Ok((rows, all))
}

/// The problem of a text on a device that failed.
fn problem(text: &Text, healthy: &Text, kind: FaultKind) -> Option<String> {
    let (made, expected) = (&text.tokens, &healthy.tokens);
    match &text.fallbacks[..] {
        _ if made != expected => Some(format!("the tokens are {made:?}, not {expected:?}")),
        [Fallback { error, .. }] if Some(error.class) != kind.class() => {
            Some(format!("reported as {}", error.class))
        }
        [Fallback { error, to: None }] => Some(format!("no device took over: {error}")),
        [_] => None,
        other => Some(format!("{} fallbacks instead of one", other.len())),
    }
}

/// A prompt after which every device that computes right chooses the same tokens.
fn prompt() -> Result<Vec<u32>> {
    let bounds = Bounds::of(bundled::FILE_TYPE, false);
    let goldens = Golden::parse(bundled::goldens(bundled::FILE_TYPE).unwrap_or_default())?;
    let certain = |g: &Golden| {
        let mut steps = g.steps.iter().take(TOKENS);
        steps.all(|step| step.margin() >= bounds.near)
    };
    let golden = goldens.into_iter().find(certain);
    golden.map(|golden| golden.ids).ok_or_else(|| {
        anyhow::anyhow!(
            "no golden can be compared: each has a near tie in its first {TOKENS} tokens"
        )
    })
}

/// Greedy tokens on a device that fails at its n-th launch.
fn generate(
    backend: &Arc<dyn Backend>,
    model: &Model,
    prompt: &[u32],
    n: u64,
    kind: FaultKind,
) -> Result<Text> {
    let device = backend.info().device;
    let fault = Fault {
        device,
        op: None,
        when: When::Nth(n),
        kind,
    };
    let first = Arc::new(Faulty::new(backend.clone(), [fault]));
    let chain: [Arc<dyn Backend>; 2] = [first.clone(), Arc::new(Cpu::new(1))];
    let runtime = Runtime::new(chain);
    runtime.set_background_compilation(false);
    let options = SessionOptions {
        context: prompt.len() + TOKENS,
        routing: Routing {
            device,
            ..Routing::AUTO
        },
        ..SessionOptions::default()
    };
    let mut session = Session::new(model, &runtime, options)?;
    let (mut logits, mut launches) = (Vec::new(), Vec::new());
    session.feed(prompt, &mut logits)?;
    launches.push(first.launches());
    for _ in 0..TOKENS {
        session.feed(&[largest(&logits)], &mut logits)?;
        launches.push(first.launches());
    }
    Ok(Text {
        tokens: session.tokens().to_vec(),
        launches,
        fallbacks: runtime.fallbacks(),
    })
}
