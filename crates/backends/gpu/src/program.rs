//! Launches on buffers.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustorch_runtime::{
    DeviceBuffer, DeviceError, FailureClass, LaunchTime, Lowered, NoProbe, Nodes, Probe, Program,
    Scratch, Step,
};
use smallvec::SmallVec;
use tracing::warn;

use crate::driver::{Driver, Launch};
use crate::emit::{Emitted, Mistake, Work};
use crate::kernel::{Buffer, Dispatch};
use crate::poison::{Status, Suspicion};
use crate::pool::{GpuBuffer, Pool};

/// Fewest launches that are recorded. Fewer take the host and the device longer so than one by one.
const WORTH_RECORDING: usize = 4;

/// Most sets of buffers with recordings. Runs of training, whose batches and losses alternate, find theirs again.
const RECORDINGS: usize = 4;

/// The launches of a graph.
pub(crate) struct GpuProgram<D: Driver> {
    pool: Arc<Pool<D>>,
    steps: Vec<Step>,
    /// The nodes that each step computes, for timing.
    nodes: Arc<[Nodes]>,
    /// For each step, the number of launches up to its end.
    ends: Vec<usize>,
    launches: Vec<Ready<D::Kernel>>,
    mistakes: Vec<Mistake>,
    /// Bytes of each buffer of the arena, of the host's memory in which values wait, and of scratch memory.
    arena: Vec<usize>,
    offloaded: Vec<usize>,
    scratch: usize,
    /// Words that are zero between launches.
    counters: usize,
    kept: Mutex<Kept<D>>,
}

/// A launch that is ready to be made.
struct Ready<K> {
    /// The step it is for.
    step: usize,
    work: Work,
    /// Its kernel, if it is one of ours.
    kernel: Option<Arc<K>>,
}

/// State that a program keeps from run to run; one run at a time uses it.
struct Kept<D: Driver> {
    status: Option<Arc<Status<D>>>,
    /// Words that launches count in: 0 between launches.
    counters: Option<GpuBuffer<D>>,
    /// The host's memory in which values wait: it takes long to get.
    offloaded: Vec<D::Buffer>,
    recorded: Recorded<D>,
}

/// The recordings of a run's parts.
type Recordings<D> = SmallVec<[<D as Driver>::Recording; 1]>;

/// The launches on the buffers of the last runs.
struct Recorded<D: Driver> {
    /// Addresses of a run's operands, arena and scratch memory, and the step behind a wait. With them are the recordings
    /// of each [part](Parts), which are made when they come for the second time. They begin with the last run's.
    known: Vec<(Vec<u64>, Recordings<D>)>,
    /// Addresses of this run.
    now: Vec<u64>,
}

/// The steps of a run, which are queued part by part. Between two parts the host waits: a mistake in the first ends
/// the run before the second overwrites states.
struct Parts(SmallVec<[Range<usize>; 2]>);

impl<D: Driver> Recorded<D> {
    /// Puts those of this run first. Returns whether they were known.
    fn find(&mut self) -> bool {
        match self.known.iter().position(|(known, _)| *known == self.now) {
            Some(at) => {
                self.known[..=at].rotate_right(1);
                true
            }
            None => {
                self.known.truncate(RECORDINGS - 1);
                self.known.insert(0, (self.now.clone(), SmallVec::new()));
                false
            }
        }
    }
}

/// The buffers of a run.
struct Buffers<'a, D: Driver> {
    inputs: &'a [Arc<dyn DeviceBuffer>],
    outputs: &'a [Arc<dyn DeviceBuffer>],
    arena: &'a [GpuBuffer<D>],
    /// Counted on behind those of the arena.
    offloaded: &'a [D::Buffer],
    scratch: &'a GpuBuffer<D>,
    status: Option<&'a Arc<Status<D>>>,
    counters: Option<&'a GpuBuffer<D>>,
}

impl<D: Driver> GpuProgram<D> {
    /// `emitted` launches of `lowered`, with a kernel for each that needs one.
    pub(crate) fn new(
        pool: Arc<Pool<D>>,
        lowered: Lowered,
        emitted: Emitted,
        kernels: Vec<Option<Arc<D::Kernel>>>,
    ) -> Self {
        Self {
            pool,
            nodes: lowered.steps.iter().map(Step::nodes).collect(),
            steps: lowered.steps,
            ends: emitted.ends,
            launches: (kernels.into_iter().zip(emitted.work))
                .map(|(kernel, (step, work))| Ready { step, work, kernel })
                .collect(),
            mistakes: emitted.mistakes,
            arena: lowered.arena,
            offloaded: lowered.offloaded,
            scratch: emitted.scratch,
            counters: emitted.counters,
            kept: Mutex::new(Kept {
                status: None,
                counters: None,
                offloaded: Vec::new(),
                recorded: Recorded {
                    known: Vec::new(),
                    now: Vec::new(),
                },
            }),
        }
    }

    fn error(&self, class: FailureClass, message: &str) -> DeviceError {
        DeviceError::new(self.pool.driver.info().device, class, message)
    }

    /// The buffer of this backend that a handle is on.
    fn own<'b>(&self, buffer: &'b Arc<dyn DeviceBuffer>) -> Result<&'b GpuBuffer<D>, DeviceError> {
        let own = buffer.as_any().downcast_ref();
        own.ok_or_else(|| self.error(FailureClass::Unsupported, "a buffer of another device"))
    }

    fn buffer<'b>(
        &self,
        buffers: &Buffers<'b, D>,
        buffer: Buffer,
    ) -> Result<&'b D::Buffer, DeviceError> {
        Ok(match buffer {
            Buffer::Input(i) => self.own(&buffers.inputs[i])?.inner(),
            Buffer::Output(i) => self.own(&buffers.outputs[i])?.inner(),
            Buffer::Arena(i) => match buffers.arena.get(i) {
                Some(buffer) => buffer.inner(),
                None => &buffers.offloaded[i - buffers.arena.len()],
            },
            Buffer::Scratch => buffers.scratch.inner(),
            // Without status words or counters, no kernel touches these buffers.
            Buffer::Status => match buffers.status {
                Some(status) => &status.word,
                None => buffers.scratch.inner(),
            },
            Buffer::Counters => buffers.counters.unwrap_or(buffers.scratch).inner(),
        })
    }

    /// The parts of a run, which `probe` observes.
    fn parts(&self, probe: &dyn Probe, until: Until) -> Parts {
        let all = self.steps.len();
        let update = probe.update().filter(|_| until == Until::Over);
        let split = update.and_then(|update| {
            let may_fail = self.mistakes.iter().any(|mistake| mistake.node < update);
            let steps = || self.steps.iter().map(|step| step.last().node);
            may_fail.then(|| steps().position(|node| node >= update))?
        });
        let ends = split.into_iter().filter(|&at| at > 0).chain([all]);
        let mut first = 0;
        Parts(
            ends.map(|end| std::mem::replace(&mut first, end)..end)
                .collect(),
        )
    }

    /// Queues the launches of some steps; `probe` is asked before each step.
    fn queue(
        &self,
        steps: Range<usize>,
        buffers: &Buffers<'_, D>,
        probe: &dyn Probe,
    ) -> Result<(), DeviceError> {
        let mut steps = steps;
        steps.try_for_each(|step| self.queue_step(step, buffers, probe))
    }

    /// Queues the launches of a step, before which `probe` is asked.
    fn queue_step(
        &self,
        step: usize,
        buffers: &Buffers<'_, D>,
        probe: &dyn Probe,
    ) -> Result<(), DeviceError> {
        for part in &self.steps[step].parts {
            probe.before(part.node, &part.op)?;
        }
        let first = step.checked_sub(1).map_or(0, |before| self.ends[before]);
        for at in first..self.ends[step] {
            let launch = &self.launches[at];
            let launched = match (&launch.work, &launch.kernel) {
                (Work::Kernel(dispatch), Some(kernel)) => {
                    self.launch(buffers, kernel, dispatch, at > 0)
                }
                (Work::Gemm(product), _) => {
                    let (gemm, operands) = &**product;
                    let operands = operands.iter();
                    let operands = operands.map(|&(of, at)| Ok((self.buffer(buffers, of)?, at)));
                    let operands: SmallVec<[_; 4]> =
                        operands.collect::<Result<_, DeviceError>>()?;
                    // SAFETY: as for kernels.
                    unsafe { self.pool.driver.gemm(gemm, &operands) }
                }
                (Work::Kernel(_), None) => Ok(()),
            };
            let part = self.steps[launch.step].last();
            launched.map_err(|e: DeviceError| e.at(part.node, part.op.name()))?;
        }
        Ok(())
    }

    /// Runs every launch, and reports to `probe` the time of each step of the run, which began
    /// then.
    fn time(
        &self,
        buffers: &Buffers<'_, D>,
        Parts(parts): &Parts,
        probe: &dyn Probe,
        begin: Instant,
    ) -> Result<(), DeviceError> {
        let is_second = |step: usize| parts[1..].iter().any(|part| part.start == step);
        let mut queue = |step| {
            if is_second(step) {
                self.finish(buffers.status, buffers.inputs)?;
            }
            self.queue_step(step, buffers, probe)
        };
        let driver = &self.pool.driver;
        let start = Instant::now();
        let times = driver.time(self.steps.len(), &mut queue)?;
        let Some(times) = times.filter(|times| !times.is_empty()) else {
            return Ok(());
        };
        if !can_be(&times, start.elapsed()) {
            let device = driver.info().device;
            self.pool.doubted.call_once(|| {
                tracing::warn!(
                    "{device} reports more time than the whole run took; its times are ignored"
                );
            });
            return Ok(());
        }
        let mut since = start.saturating_duration_since(begin);
        let times = times.into_iter().map(|time| {
            let launch = LaunchTime::new(since, time);
            since += time;
            launch
        });
        probe.took(&self.nodes, 0, &times.collect::<Vec<_>>());
        Ok(())
    }

    fn launch(
        &self,
        buffers: &Buffers<'_, D>,
        kernel: &D::Kernel,
        dispatch: &Dispatch,
        begins_early: bool,
    ) -> Result<(), DeviceError> {
        let mut operands: SmallVec<[&D::Buffer; 16]> = SmallVec::new();
        for &buffer in &dispatch.buffers {
            operands.push(self.buffer(buffers, buffer)?);
        }
        let launch = Launch {
            groups: dispatch.groups,
            group: dispatch.group,
            buffers: &operands,
            accesses: &dispatch.accesses,
            tiles: &dispatch.tiles,
            params: &dispatch.params,
            dynamic_local: dispatch.dynamic_local,
            begins_early,
        };
        // SAFETY: kernels stay inside the operands whose layouts made their parameters; the
        // runtime gives each input and output its type's bytes and keeps writers away;
        // lowering places live values apart from each other.
        unsafe { self.pool.driver.launch(kernel, &launch) }
    }

    /// The word in which kernels report mistakes, if they can find any.
    fn status<'k>(
        &self,
        kept: &'k mut Option<Arc<Status<D>>>,
    ) -> Result<Option<&'k Arc<Status<D>>>, DeviceError> {
        if kept.is_none() && !self.mistakes.is_empty() {
            *kept = Some(Arc::new(Status::new(&self.pool.driver)?));
        }
        Ok(kept.as_ref())
    }

    /// The words that launches count in, 0 at first, if they do.
    fn counters<'k>(
        &self,
        kept: &'k mut Option<GpuBuffer<D>>,
    ) -> Result<Option<&'k GpuBuffer<D>>, DeviceError> {
        let bytes = self.counters * size_of::<u32>();
        if kept.is_none() && bytes > 0 {
            let buffer = self.pool.alloc(bytes)?;
            // SAFETY: nobody else has the new buffer.
            unsafe { buffer.write(0, &vec![0; bytes])? };
            *kept = Some(buffer);
        }
        Ok(kept.as_ref())
    }

    /// The host's memory in which values wait. A device that gets none does not move them.
    fn offloaded<'k>(&self, kept: &'k mut Vec<D::Buffer>) -> Result<&'k [D::Buffer], DeviceError> {
        while let Some(&bytes) = self.offloaded.get(kept.len()) {
            let buffer = self.pool.driver.alloc_host(bytes);
            kept.push(buffer.map_err(|e| match e.class {
                FailureClass::OutOfMemory { .. } => {
                    let mut parts = self.steps.iter().map(Step::last);
                    let first = parts.find(|part| part.op.def().offloads());
                    let error = self.error(FailureClass::Unsupported, &e.message);
                    first.map_or(error.clone(), |part| error.at(part.node, part.op.name()))
                }
                _ => e,
            })?);
        }
        Ok(kept)
    }

    /// Queues the launches of all parts: at once if one of the last runs had the same buffers.
    fn start(
        &self,
        buffers: &Buffers<'_, D>,
        Parts(parts): &Parts,
        recorded: &mut Recorded<D>,
        probe: &dyn Probe,
    ) -> Result<(), DeviceError> {
        let is_known = self.find(buffers, parts[0].end, recorded)?;
        for (number, steps) in parts.iter().enumerate() {
            if number > 0 {
                self.finish(buffers.status, buffers.inputs)?;
            }
            match is_known {
                true => self.replay(number, steps.clone(), buffers, recorded, probe)?,
                false => self.queue(steps.clone(), buffers, probe)?,
            }
        }
        Ok(())
    }

    /// Had one of the last runs the same buffers, so that a recording is worth it?
    fn find(
        &self,
        buffers: &Buffers<'_, D>,
        split: usize,
        recorded: &mut Recorded<D>,
    ) -> Result<bool, DeviceError> {
        if !D::RECORDS || self.launches.len() < WORTH_RECORDING {
            return Ok(false);
        }
        let driver = &self.pool.driver;
        let operands = buffers.inputs.iter().chain(buffers.outputs);
        let memory = buffers.arena.iter().chain([buffers.scratch]);
        let all = operands.map(|b| self.own(b)).chain(memory.map(Ok));
        recorded.now.clear();
        for buffer in all {
            recorded.now.push(driver.address(buffer?.inner()));
        }
        recorded.now.push(split as u64);
        Ok(recorded.find())
    }

    /// Queues the launches of a part at once. The first time, they are queued one by one. The host records them while the
    /// device is at work.
    fn replay(
        &self,
        part: usize,
        steps: Range<usize>,
        buffers: &Buffers<'_, D>,
        recorded: &mut Recorded<D>,
        probe: &dyn Probe,
    ) -> Result<(), DeviceError> {
        let driver = &self.pool.driver;
        let recordings = &mut recorded.known[0].1;
        let Some(recording) = recordings.get(part) else {
            self.queue(steps.clone(), buffers, probe)?;
            // Parts are recorded in their order. A run whose launches are queued goes on without a recording.
            if recordings.len() == part {
                match driver.record(&mut || self.queue(steps.clone(), buffers, &NoProbe)) {
                    Ok(recording) => recordings.push(recording),
                    Err(e) => warn!("a run is not recorded: {e}"),
                }
            }
            return Ok(());
        };
        for part in self.steps[steps].iter().flat_map(|s| &s.parts) {
            probe.before(part.node, &part.op)?;
        }
        // SAFETY: as for its launches, whose buffers are the same.
        unsafe { driver.replay(recording) }
    }

    /// Waits for a run of these inputs. Fails if a kernel has found a mistake in it, which is then forgotten.
    fn finish(
        &self,
        status: Option<&Arc<Status<D>>>,
        inputs: &[Arc<dyn DeviceBuffer>],
    ) -> Result<(), DeviceError> {
        self.pool.driver.wait()?;
        let code = status.map_or(Ok(0), |status| status.take(&self.pool.driver))?;
        if code == 0 {
            return Ok(());
        }
        let read = |input: usize| {
            let mut bytes = vec![0; inputs[input].bytes()];
            // SAFETY: the run is over, and does not write to this input.
            let read = unsafe { inputs[input].read(0, &mut bytes) };
            read.ok().map(|()| bytes)
        };
        Err(match self.mistakes.get(code as usize - 1) {
            Some(mistake) => {
                let error = self.error(FailureClass::Caller, &mistake.told(read));
                error.at(mistake.node, mistake.op)
            }
            None => self.error(FailureClass::Lost, "memory was overwritten"),
        })
    }
}

impl<D: Driver> GpuProgram<D> {
    /// The wait for a run, if the driver can do without waiting.
    fn at_most(&self, until: Until) -> Until {
        match self.is_queued() {
            true => until,
            false => Until::Over,
        }
    }

    /// Queues a run, and ends it if a caller waits.
    fn execute(
        &self,
        inputs: &[Arc<dyn DeviceBuffer>],
        outputs: &[Arc<dyn DeviceBuffer>],
        probe: &dyn Probe,
        until: Until,
    ) -> Result<(), DeviceError> {
        // These go back to the pool while the device still works: all that a device does is in one order.
        let arena = self.arena.iter().map(|&bytes| self.pool.alloc(bytes));
        let arena: Vec<GpuBuffer<D>> = arena.collect::<Result<_, _>>()?;
        let scratch = self.pool.alloc(self.scratch)?;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let Kept {
            status,
            counters,
            offloaded,
            recorded,
        } = &mut *kept;
        let status = self.status(status)?;
        let poison = &self.pool.poison;
        // The word whose mistakes are not looked for yet when the run returns.
        let ahead = status.filter(|_| until == Until::Settled);
        if until == Until::Over && status.is_some() {
            self.pool.settle()?;
        }
        let buffers = Buffers {
            inputs,
            outputs,
            arena: &arena,
            offloaded: self.offloaded(offloaded)?,
            scratch: &scratch,
            status,
            counters: self.counters(counters)?,
        };
        ahead.inspect(|status| poison.begin(status));
        let parts = &self.parts(probe, until);
        let mut result = match probe.timed_since() {
            Some(begin) => self.time(&buffers, parts, probe, begin),
            None => match probe.watcher() {
                Some(watcher) => {
                    let mut start = || self.start(&buffers, parts, recorded, probe);
                    self.pool.driver.span(&mut start, watcher)
                }
                None => self.start(&buffers, parts, recorded, probe),
            },
        };
        let suspicion = ahead.map(|status| poison.queued(status));
        if until == Until::Over || result.is_err() {
            // Even after a failure: what was queued before still uses the buffers.
            let finished = self.finish(status.filter(|_| result.is_ok()), inputs);
            result = result.and(finished);
        }
        if result.is_err() {
            // Launches that never came have not set their counters back.
            *counters = None;
            recorded.known.clear();
        }
        result.and_then(|()| self.suspect(suspicion.unwrap_or_default(), inputs, outputs))
    }

    /// Notes the suspicion that the run's own word and its inputs cast on its outputs.
    fn suspect(
        &self,
        mut suspicion: Suspicion,
        inputs: &[Arc<dyn DeviceBuffer>],
        outputs: &[Arc<dyn DeviceBuffer>],
    ) -> Result<(), DeviceError> {
        let poison = &self.pool.poison;
        for input in inputs.iter().filter(|_| poison.may_be_any()) {
            suspicion = poison.both(suspicion, self.own(input)?.suspected.get());
        }
        for output in outputs {
            self.own(output)?.suspected.set(suspicion);
        }
        Ok(())
    }
}

/// End of the wait for a run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    /// Until it is queued; the caller has made sure that it finds no mistake.
    Queued,
    /// The run is queued; a later call [settles](Pool::settle) it.
    Settled,
    /// The run is over.
    Over,
}

/// Can a device have worked so long for each step of a run that took `elapsed`? Clocks may differ a
/// little.
fn can_be(times: &[Duration], elapsed: Duration) -> bool {
    let mut times = times.iter();
    let sum = times.try_fold(Duration::ZERO, |sum, time| sum.checked_add(*time));
    sum.is_some_and(|sum| sum <= elapsed.saturating_mul(2))
}

impl<D: Driver> Program for GpuProgram<D> {
    fn run(
        &self,
        inputs: &[Arc<dyn DeviceBuffer>],
        outputs: &[Arc<dyn DeviceBuffer>],
        probe: &dyn Probe,
    ) -> Result<(), DeviceError> {
        self.execute(inputs, outputs, probe, Until::Over)
    }

    fn queue(
        &self,
        inputs: &[Arc<dyn DeviceBuffer>],
        outputs: &[Arc<dyn DeviceBuffer>],
        probe: &dyn Probe,
    ) -> Result<(), DeviceError> {
        self.execute(inputs, outputs, probe, self.at_most(Until::Queued))
    }

    fn run_ahead(
        &self,
        inputs: &[Arc<dyn DeviceBuffer>],
        outputs: &[Arc<dyn DeviceBuffer>],
        probe: &dyn Probe,
    ) -> Result<(), DeviceError> {
        self.execute(inputs, outputs, probe, self.at_most(Until::Settled))
    }

    fn finds_mistakes(&self) -> bool {
        !self.mistakes.is_empty()
    }

    fn is_queued(&self) -> bool {
        D::RECORDS
    }

    fn scratch(&self) -> Scratch {
        Scratch {
            bytes: self.arena.iter().sum::<usize>() + self.scratch,
            kept: false,
            offloaded: self.offloaded.iter().sum(),
        }
    }
}

#[cfg(test)]
mod tests;
