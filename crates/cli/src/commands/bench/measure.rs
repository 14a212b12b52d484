//! Measuring a model, as llama-bench does it.

use std::time::{Duration, Instant};

use anyhow::Result;
use rustorch_ir::ops::philox;
use rustorch_llm::{Model, Scores, Selection, Session, SessionOptions};
use rustorch_runtime::Runtime;

/// Tokens of generation that are enough to warm up.
const FEW: usize = 4;
/// Time of a run that can be repeated without anybody noticing.
const SHORT: Duration = Duration::from_millis(500);

/// The measured test: number of prompt tokens or of generated tokens. The other number is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Test {
    pub(crate) prompt: usize,
    pub(crate) generate: usize,
    /// Tokens in the context before.
    pub(crate) depth: usize,
}

/// A test with the times it took.
pub(crate) struct Measured {
    pub(crate) test: Test,
    pub(crate) times: Vec<Duration>,
    /// Bytes of keys and values.
    pub(crate) cache_bytes: usize,
    /// Bytes of intermediate values.
    pub(crate) working_bytes: usize,
}

impl Test {
    /// Tokens that a repetition computes.
    pub(crate) fn tokens(&self) -> usize {
        self.prompt + self.generate
    }
}

impl Measured {
    /// Tokens a second in each repetition.
    pub(crate) fn speeds(&self) -> Vec<f64> {
        let speed = |time: &Duration| self.test.tokens() as f64 / time.as_secs_f64();
        self.times.iter().map(speed).collect()
    }
}

/// Mean and sample standard deviation.
pub(crate) fn mean_and_deviation(samples: &[f64]) -> (f64, f64) {
    let n = samples.len() as f64;
    let mean = samples.iter().sum::<f64>() / n;
    let squares: f64 = samples.iter().map(|x| (x - mean).powi(2)).sum();
    (mean, (squares / (n - 1.0).max(1.0)).sqrt())
}

/// Measures a test several times, after warming up. Waits for programs that take long to compile, so that no
/// other device runs in their place.
pub(crate) fn run(
    model: &Model,
    runtime: &Runtime,
    settings: &SessionOptions,
    test: Test,
    repetitions: u32,
) -> Result<Measured> {
    let settings = SessionOptions {
        context: test.depth + test.tokens(),
        ..settings.clone()
    };
    runtime.set_background_compilation(false);
    let mut session = Session::new(model, runtime, settings)?;
    let mut tokens = RandomTokens::new(model);
    let (best, mut scores) = (Selection::best(), Scores::default());
    let depth = tokens.take(test.depth);
    session.feed_and_select(&depth, &best, &mut scores)?;
    let mut time = |test: Test| -> Result<Duration> {
        // A recurrent state, or a window that moved on, is made again here, before time counts.
        session.truncate(test.depth.saturating_sub(1));
        if let Some(last) = depth.last() {
            session.feed_and_select(&[*last], &best, &mut scores)?;
        }
        let prompt = tokens.take(test.prompt);
        let mut next = tokens.take(test.generate.min(1));
        let start = Instant::now();
        // All logits, for the device must not go on by itself.
        session.feed(&prompt, &mut scores.logits)?;
        for _ in 0..test.generate {
            session.feed_and_select(&next, &best, &mut scores)?;
            if let Some(ids) = &scores.ids {
                next.clone_from(ids);
            }
        }
        Ok(start.elapsed())
    };
    let warm_up = Test {
        generate: test.generate.min(FEW),
        ..test
    };
    // Once more if it is short: launches that come again are recorded.
    if time(warm_up)? < SHORT {
        time(warm_up)?;
    }
    let times = (0..repetitions)
        .map(|_| time(test))
        .collect::<Result<_>>()?;
    Ok(Measured {
        test,
        times,
        cache_bytes: session.cache_bytes(),
        working_bytes: session.working_bytes(),
    })
}

/// Random token ids, the same in every run.
struct RandomTokens {
    vocab: usize,
    drawn: u64,
}

impl RandomTokens {
    fn new(model: &Model) -> Self {
        Self {
            vocab: model.spec().vocab,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics() {
        assert_eq!(mean_and_deviation(&[2.0, 4.0, 6.0]), (4.0, 2.0));
        assert_eq!(mean_and_deviation(&[3.0]), (3.0, 0.0));
    }
}
