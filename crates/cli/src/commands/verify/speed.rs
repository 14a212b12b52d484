//! Speed of a device, compared with the CPU of the same machine.

use anyhow::Result;
use rustorch_llm::Model;

use super::findings::{Figure, Findings, Outcome, Row};
use crate::commands::bench::kernels;
use crate::commands::bench::measure::{self, Test, mean_and_deviation};
use crate::progress;
use crate::subject::Subject;

/// The measurements of a model: a prompt, and generation.
const TESTS: [Test; 2] = [
    Test {
        prompt: 512,
        generate: 0,
        depth: 0,
    },
    Test {
        prompt: 0,
        generate: 64,
        depth: 0,
    },
];
const REPETITIONS: u32 = 3;

/// The measurement, with its unit; larger is faster.
const MEASURES: [&str; 4] = [
    "prompt of 512 tokens, tokens/s",
    "generation of 64 tokens, tokens/s",
    "memory stream, GB/s",
    "matmul 1024 × 1024 of f32, GFLOP/s",
];

/// A device's speeds in the order of [`MEASURES`].
#[derive(Clone, Copy)]
pub(super) struct Speeds([Option<f64>; 4]);

impl Speeds {
    /// Measures a device, or several together. The last two figures are unknown for several.
    pub(super) fn of(subject: &Subject, model: &Model) -> Result<Self> {
        let bar = progress::steps("speed", MEASURES.len());
        let runtime = subject.runtime();
        let settings = subject.session(model)?;
        let mut speeds = [None; 4];
        for (speed, test) in speeds.iter_mut().zip(TESTS) {
            let measured = measure::run(model, &runtime, &settings, test, REPETITIONS)?;
            *speed = Some(mean_and_deviation(&measured.speeds()).0);
            bar.inc(1);
        }
        if subject.device().is_some() {
            let rates = kernels::measure(&runtime)?;
            speeds[2] = Some(rates.bytes_per_second / 1e9);
            speeds[3] = Some(rates.operations_per_second / 1e9);
        }
        bar.finish_and_clear();
        Ok(Self(speeds))
    }
}

/// Speeds beside the CPU's, if those are known and not the same.
pub(super) fn check(subject: &Subject, model: &Model, cpu: Option<&Speeds>) -> Findings {
    let speeds = match cpu {
        Some(cpu) if subject.is_cpu() => Ok(*cpu),
        _ => Speeds::of(subject, model),
    };
    let cpu = cpu.filter(|_| !subject.is_cpu());
    let rows = match speeds {
        Err(e) => vec![Row::failed("speed", format!("{e:#}"))],
        Ok(Speeds(speeds)) => (MEASURES.iter().zip(speeds).enumerate())
            .filter_map(|(i, (name, speed))| Some(row(name, speed?, cpu.and_then(|c| c.0[i]))))
            .collect(),
    };
    Findings {
        did: format!(
            "Speed of the bundled model, as `bench` measures it: the mean of {REPETITIONS} runs after \
             a warm-up. Also a negation of 64 MiB and a matrix product, each the fastest of \
             several runs. Each device is measured alone."
        ),
        rows,
        ..Findings::default()
    }
}

fn row(name: &str, speed: f64, cpu: Option<f64>) -> Row {
    let mut row = Row::passed(name, vec![Figure::new("here", speed)]);
    if let Some(cpu) = cpu {
        row.figures.push(Figure::new("cpu", cpu));
        row.figures.push(Figure::new("here / cpu", speed / cpu));
        if speed < cpu {
            row.outcome = Outcome::Slower;
        }
    }
    row
}
