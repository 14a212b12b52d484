//! Copies between host and device: none if the device computes in the host's memory.

use anyhow::Result;
use rustorch_llm::golden::largest;
use rustorch_llm::{Model, Session, SessionOptions};
use rustorch_tensor::Activity;

use super::findings::{Figure, Findings, Row};
use crate::subject::Subject;

/// The name of the row.
const NAME: &str = "weights, inputs, cache and logits";
/// Tokens of the prompt, and after it.
const PROMPT: usize = 16;
const TOKENS: usize = 8;

/// Counts the copies to and from devices for a short text.
pub(super) fn check(subject: &Subject, model: &Model) -> Findings {
    let place = match subject.shares_host_memory() {
        true => "The device shares the host's memory, so nothing may be copied.",
        false => "The device has its own memory, so weights and inputs are copied to it.",
    };
    Findings {
        did: format!(
            "The bundled model reads a prompt of {PROMPT} tokens and generates {TOKENS}. {place}"
        ),
        rows: vec![count(subject, model).unwrap_or_else(|e| Row::failed(NAME, format!("{e:#}")))],
        ..Findings::default()
    }
}

fn count(subject: &Subject, model: &Model) -> Result<Row> {
    let runtime = subject.runtime();
    let inside = || subject.backends.iter().map(|b| b.copied()).sum::<u64>();
    let before = inside();
    let options = SessionOptions {
        context: PROMPT + TOKENS,
        ..subject.session(model)?
    };
    let mut session = Session::new(model, &runtime, options)?;
    let mut logits = Vec::new();
    let prompt: Vec<u32> = (0..PROMPT as u32).collect();
    session.feed(&prompt, &mut logits)?;
    for _ in 0..TOKENS {
        session.feed(&[largest(&logits)], &mut logits)?;
    }
    let memory = runtime.memory();
    let activity = Activity::of(&runtime);
    let (copied, conversions) = (activity.copied.bytes, activity.conversions);
    let devices = runtime.used_devices();
    let accesses = devices
        .iter()
        .filter_map(|(device, _)| memory.accesses(*device));
    let accesses: u64 = accesses.map(|a| a.accesses).sum();
    let figure = |what, value: u64, none: bool| {
        let figure = Figure::new(what, value as f64);
        if none { figure.at_most(0.0) } else { figure }
    };
    let (no_copies, no_conversions) = (subject.shares_host_memory(), subject.is_f32_hybrid());
    let figures = vec![
        figure("bytes copied", copied, no_copies),
        figure("conversions", conversions, no_conversions),
        figure("accesses", accesses, false),
        figure("bytes copied by programs", inside() - before, false),
    ];
    let (computed, idle) = subject.computed(&runtime);
    let problems = [
        (no_copies && copied > 0, "bytes were copied"),
        (no_conversions && conversions > 0, "elements were converted"),
        (accesses == 0, "no device used a single tensor"),
    ];
    let row = Row::passed(NAME, figures);
    let row = memory
        .routes()
        .iter()
        .fold(row, |row, route| row.remark(route));
    let row = match subject.backends.len() {
        1 => row,
        _ => row.remark(computed),
    };
    let problems = problems.into_iter().filter(|(is, _)| *is);
    let problems = problems.map(|(_, what)| what.to_owned());
    Ok(row.judged(problems.chain(idle)))
}
