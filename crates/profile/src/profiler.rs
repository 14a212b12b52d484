//! Profiling of a part of a program.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rustorch_runtime::{Observer, Runtime, Span};

use crate::averages::KeyAverages;
use crate::limits::Limits;
use crate::record::{Records, nanoseconds};
use crate::recorder::{Recorded, Recorder, Target, sink, unwritten};
use crate::timeline::Timeline;

/// The profiled steps of a loop: `wait` steps are skipped at no cost, `warm_up` steps are
/// discarded, and `active` ones are recorded. Then the cycle repeats, as with PyTorch's
/// `torch.profiler.schedule`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Schedule {
    wait: u64,
    warm_up: u64,
    active: u64,
    repeat: u64,
}

/// A [`Schedule`] with these numbers of steps, repeated until the end.
pub fn schedule(wait: u64, warm_up: u64, active: u64) -> Schedule {
    Schedule {
        wait,
        warm_up,
        active,
        repeat: 0,
    }
}

/// The action of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Off,
    WarmUp,
    Active,
}

impl Schedule {
    /// Limits the number of cycles; 0 for no limit.
    #[must_use]
    pub fn repeat(self, repeat: u64) -> Self {
        Self { repeat, ..self }
    }

    /// The action of a step, from 0 on.
    fn phase(self, step: u64) -> Phase {
        let length = self
            .wait
            .saturating_add(self.warm_up)
            .saturating_add(self.active);
        let Some(at) = step.checked_rem(length) else {
            return Phase::Off;
        };
        match at {
            _ if self.repeat > 0 && step / length >= self.repeat => Phase::Off,
            at if at < self.wait => Phase::Off,
            at if at - self.wait < self.warm_up => Phase::WarmUp,
            _ => Phase::Active,
        }
    }
}

/// Options of profiling, with the target of traces.
#[derive(Clone, Debug, Default)]
pub struct ProfilerOptions {
    target: Target,
    schedule: Option<Schedule>,
}

impl ProfilerOptions {
    /// Averages alone.
    pub fn new() -> Self {
        Self::default()
    }

    /// The trace file, written during the run: Chrome's JSON if its name ends in `.json`, else
    /// Perfetto's protobuf. A failed write gives one warning, and has no other effect.
    #[must_use]
    pub fn trace(self, path: impl Into<PathBuf>) -> Self {
        let target = Target::File(path.into());
        Self { target, ..self }
    }

    /// Keeps the record in memory for [`Profile::save`]: about 20 bytes for a launch, up to the
    /// first four million events.
    #[must_use]
    pub fn keep(self) -> Self {
        let target = Target::Memory;
        Self { target, ..self }
    }

    /// Records only some steps; [`Profiler::step`] marks their ends.
    #[must_use]
    pub fn schedule(self, schedule: Schedule) -> Self {
        let schedule = Some(schedule);
        Self { schedule, ..self }
    }

    /// Begins to profile a runtime.
    pub fn start(self, runtime: &Runtime) -> Profiler {
        let limits = Limits::of(runtime);
        let (recorder, writer) = Recorder::start(&self.target, limits.clone());
        let observer: Arc<dyn Observer> = recorder.clone();
        let mut profiler = Profiler {
            runtimes: vec![runtime.clone()],
            limits,
            recorder,
            observer,
            writer,
            schedule: self.schedule,
            step: 0,
            span: None,
            phase: Phase::Off,
        };
        profiler.begin_step();
        profiler
    }
}

/// Records the activity of a runtime until the profiler is finished or dropped.
pub struct Profiler {
    runtimes: Vec<Runtime>,
    limits: Limits,
    recorder: Arc<Recorder>,
    observer: Arc<dyn Observer>,
    writer: Option<JoinHandle<Recorded>>,
    schedule: Option<Schedule>,
    step: u64,
    /// The step.
    span: Option<Span>,
    phase: Phase,
}

impl Profiler {
    pub(crate) fn recorder(&self) -> Arc<Recorder> {
        self.recorder.clone()
    }

    /// Also records another runtime.
    pub fn also(&mut self, runtime: &Runtime) {
        if self.phase != Phase::Off {
            runtime.add_observer(self.observer.clone());
        }
        self.runtimes.push(runtime.clone());
    }

    /// Ends a step of the loop, and begins the next one. Without a [`Schedule`] it only marks
    /// steps.
    pub fn step(&mut self) {
        self.span = None;
        self.step += 1;
        self.begin_step();
    }

    fn begin_step(&mut self) {
        let phase = match self.schedule {
            Some(schedule) => schedule.phase(self.step),
            None => Phase::Active,
        };
        self.enter(phase);
        if self.schedule.is_some() || self.step > 0 {
            let name = format!("ProfilerStep#{}", self.step);
            self.span = self.runtimes.first().map(|runtime| runtime.span(&name));
        }
    }

    fn enter(&mut self, phase: Phase) {
        if phase == self.phase {
            return;
        }
        if self.phase != Phase::Off {
            // Work that a device has not finished belongs to the steps before.
            let all = self.runtimes.iter();
            all.for_each(|runtime| runtime.remove_observer(&self.observer));
        }
        self.recorder.pause(phase == Phase::WarmUp);
        if phase != Phase::Off {
            let all = self.runtimes.iter();
            all.for_each(|runtime| runtime.add_observer(self.observer.clone()));
        }
        self.phase = phase;
    }

    /// Stops profiling, and waits until everything is written.
    pub fn finish(mut self) -> Profile {
        self.end()
    }

    fn end(&mut self) -> Profile {
        self.span = None;
        self.enter(Phase::Off);
        self.recorder.close();
        let recorded = self.writer.take().and_then(|writer| writer.join().ok());
        let recorded = recorded.unwrap_or_default();
        Profile {
            averages: recorded.totals.averages(&self.limits),
            records: recorded.records,
            time: recorded.time,
            failure: recorded.failure,
            limits: self.limits.clone(),
        }
    }
}

impl Drop for Profiler {
    fn drop(&mut self) {
        if self.writer.is_some() {
            self.end();
        }
    }
}

/// The record of a [`Profiler`].
pub struct Profile {
    averages: KeyAverages,
    records: Records,
    time: Duration,
    failure: Option<io::Error>,
    limits: Limits,
}

impl Profile {
    /// Averages by activity.
    pub fn key_averages(&self) -> &KeyAverages {
        &self.averages
    }

    /// Duration of the profile.
    pub fn time(&self) -> Duration {
        self.time
    }

    /// The reason why the [requested](ProfilerOptions::trace) trace is incomplete.
    pub fn failure(&self) -> Option<&io::Error> {
        self.failure.as_ref()
    }

    /// Writes a trace of the [kept](ProfilerOptions::keep) events, in the format of the file name's
    /// extension.
    ///
    /// # Errors
    /// Fails if the file cannot be written. The error names the file.
    pub fn save(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = path.as_ref();
        let mut timeline = Timeline::new(sink(path), self.limits.clone());
        for (record, times) in self.records.iter() {
            timeline.add(record, times);
        }
        timeline.finish(nanoseconds(self.time));
        std::fs::write(path, timeline.written()).map_err(|e| unwritten(path, e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_go_by_their_schedule() {
        let phases = |schedule: Schedule| -> String {
            let name = |step| match schedule.phase(step) {
                Phase::Off => '-',
                Phase::WarmUp => 'w',
                Phase::Active => 'a',
            };
            (0..10).map(name).collect()
        };
        assert_eq!(phases(schedule(1, 1, 2)), "-waa-waa-w");
        assert_eq!(phases(schedule(1, 1, 2).repeat(1)), "-waa------");
        assert_eq!(phases(schedule(0, 0, 3)), "aaaaaaaaaa");
        assert_eq!(phases(schedule(0, 0, 0)), "----------");
    }
}
