//! Memory of devices over the time of a run.

use std::collections::BTreeMap;
use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rustorch_runtime::{Event, Observer};
use serde::{Deserialize, Serialize};

use crate::commands::bench::measure::{self, Test};
use crate::output::bytes;
use crate::progress;
use crate::resume::Progress;
use crate::subject::Subject;
use crate::table::Table;
use crate::variants::Variant;

/// The workload: once to warm up, and once more.
const RUN: Test = Test {
    prompt: 128,
    generate: 32,
    depth: 0,
};

/// The results of all tried backends.
#[derive(Serialize)]
pub(super) struct Memory {
    pub(super) runs: Vec<Run>,
    /// Failed runs, and why.
    pub(super) failed: Vec<String>,
}

/// Memory over time on a backend.
#[derive(Serialize, Deserialize)]
pub(super) struct Run {
    pub(super) backend: String,
    /// Duration in seconds.
    pub(super) seconds: f64,
    pub(super) devices: Seen,
}

/// By devices: seconds, and bytes from then on.
type Seen = BTreeMap<String, Vec<(f64, u64)>>;

/// Records the memory that devices report.
struct Watcher {
    start: Instant,
    seen: Mutex<Seen>,
}

impl Watcher {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Watcher {
    fn saw(&self, event: Event<'_>) {
        if let Event::Memory { device, bytes } = event {
            let at = self.start.elapsed().as_secs_f64();
            let mut seen = self.seen();
            let its = seen.entry(device.to_string()).or_default();
            if its.last().is_none_or(|(_, last)| *last != bytes) {
                its.push((at, bytes));
            }
        }
    }

    fn wants_launches(&self) -> bool {
        false
    }
}

impl Memory {
    /// Runs the model on each of these, from weights in the file on.
    pub(super) fn measure(
        subjects: &[Subject],
        variant: &Variant,
        progress: &mut Progress,
    ) -> Self {
        let mut memory = Self {
            runs: Vec::new(),
            failed: Vec::new(),
        };
        let bar = progress::steps("memory", subjects.len());
        for subject in subjects {
            let key = format!("memory on {}", subject.name);
            match progress.attempt(&key, || Run::measure(subject, variant)) {
                Ok(run) => memory.runs.push(run),
                Err(e) => memory.failed.push(format!("{key}: {e}")),
            }
            bar.inc(1);
        }
        bar.finish_and_clear();
        memory
    }
}

impl Run {
    fn measure(subject: &Subject, variant: &Variant) -> anyhow::Result<Self> {
        let (runtime, settings) = (subject.runtime(), subject.session(&variant.model)?);
        let watcher = Arc::new(Watcher {
            start: Instant::now(),
            seen: Mutex::default(),
        });
        runtime.add_observer(watcher.clone());
        measure::run(&variant.model, &runtime, &settings, RUN, 1)?;
        let seconds = watcher.start.elapsed().as_secs_f64();
        let devices = mem::take(&mut *watcher.seen());
        Ok(Self {
            backend: subject.name.clone(),
            seconds,
            devices,
        })
    }

    /// The most that a device had.
    pub(super) fn peaks(&self) -> impl Iterator<Item = (&str, u64)> {
        let most = |points: &Vec<(f64, u64)>| points.iter().map(|&(_, bytes)| bytes).max();
        let devices = self.devices.iter();
        devices.map(move |(device, points)| (device.as_str(), most(points).unwrap_or(0)))
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "Peak memory of tensors and programs on each device. The bundled model reads a prompt of {} \
             tokens and generates {}. Weights that a device reads from the mapped file do not count.\n",
            RUN.prompt, RUN.generate
        )?;
        let cells = self.runs.iter().map(|run| {
            let peaks = run
                .peaks()
                .map(|(device, peak)| format!("{device} {}", bytes(peak)));
            vec![run.backend.clone(), peaks.collect::<Vec<_>>().join(", ")]
        });
        write!(f, "{}", Table::new(["backend", "peak memory"], cells))?;
        for failed in &self.failed {
            writeln!(f, "\nNot measured: {failed}")?;
        }
        Ok(())
    }
}
