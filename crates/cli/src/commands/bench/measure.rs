//! The tests themselves, as llama-bench does them.

use std::time::{Duration, Instant};

use anyhow::Result;
use rustorch_ir::ops::philox;
use rustorch_llm::{Model, Session, SessionOptions};

use crate::devices::Devices;

/// What is measured: a prompt, or generation; the other is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Test {
    pub(super) prompt: usize,
    pub(super) generate: usize,
    /// Tokens in the context before.
    pub(super) depth: usize,
}

/// A test with the times it took.
pub(super) struct Measured {
    pub(super) test: Test,
    pub(super) times: Vec<Duration>,
}

impl Test {
    /// Tokens that a repetition computes.
    pub(super) fn tokens(&self) -> usize {
        self.prompt + self.generate
    }
}

/// Measures a test several times, after warming up.
pub(super) fn run(
    model: &Model,
    devices: &Devices,
    settings: &SessionOptions,
    test: Test,
    repetitions: u32,
) -> Result<Measured> {
    let settings = SessionOptions {
        context: test.depth + test.tokens(),
        ..settings.clone()
    };
    let mut session = Session::new(model, &devices.runtime, settings)?;
    let mut tokens = RandomTokens::new(model);
    session.feed(&tokens.take(test.depth), &mut Vec::new())?;
    let mut time = |test: Test| -> Result<Duration> {
        session.truncate(test.depth);
        let prompt = tokens.take(test.prompt);
        let generated = tokens.take(test.generate);
        let mut logits = Vec::new();
        let start = Instant::now();
        session.feed(&prompt, &mut logits)?;
        for id in generated {
            session.feed(&[id], &mut logits)?;
        }
        Ok(start.elapsed())
    };
    // Of generation, one token is enough to warm up.
    time(Test {
        generate: test.generate.min(1),
        ..test
    })?;
    let times = (0..repetitions)
        .map(|_| time(test))
        .collect::<Result<_>>()?;
    Ok(Measured { test, times })
}

/// Random token ids, the same in every run.
struct RandomTokens {
    vocab: usize,
    drawn: u64,
}

impl RandomTokens {
    fn new(model: &Model) -> Self {
        Self {
            vocab: model.config().vocab,
            drawn: 0,
        }
    }

    fn take(&mut self, n: usize) -> Vec<u32> {
        let draw = |_| {
            self.drawn += 1;
            philox(self.drawn, 0)[0] % self.vocab as u32
        };
        (0..n).map(draw).collect()
    }
}
