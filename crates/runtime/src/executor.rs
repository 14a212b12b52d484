//! Runs graphs, and answers failures.

mod compiling;
mod constants;
mod inputs;
mod loading;
mod units;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use rustorch_ir::{Graph, Node, ValueId};
use smallvec::{SmallVec, smallvec};

use self::compiling::Compiled;
use self::constants::Constants;
use self::inputs::{Held, Inputs};
use crate::background::Job;
use crate::devices::{Devices, Memo, memo};
use crate::effects::Watch;
use crate::estimate::{EVERYWHERE, HOST, Locations};
use crate::journal::{Cause, Lease, lock};
use crate::observer::Observers;
use crate::placement::{Assignment, DeviceId};
use crate::planner::{Avoided, Estimate, Plan, Request, candidates, estimate, plan, prefer};
use crate::policy::Policy;
use crate::profile::{Launches, Profile, Timer, Whole};
use crate::segment::Segment;
use crate::storage::StorageError;
use crate::trace::{Known, explain};
use crate::{
    DeviceBuffer, DeviceError, DeviceType, Explanation, FailureClass, Fallback, HostWork, NoProbe,
    NodeNote, Probe, Reason, Routing, RunError, Storage,
};

pub use loading::Loaded;
pub use units::PreferredUnits;

/// A graph that is planned once and run often.
///
/// A run that follows others of the same plan takes no memory: buffers are kept, and results
/// that nobody holds any more are overwritten.
pub struct Executable {
    devices: Arc<Devices>,
    graph: Graph,
    routing: Routing,
    /// Where its inputs are when it is planned.
    places: Locations,
    /// Are results kept for the next run to overwrite?
    keeps: bool,
    /// Has the caller checked all values?
    is_checked: bool,
    /// May runs that find no mistakes return while devices still work?
    pub(crate) runs_ahead: bool,
    /// Why it is planned for the first time: another one may have been before.
    cause: Cause,
    /// Was it planned yet?
    is_planned: AtomicBool,
    /// Was it given other memory than programs were compiled with? Then they are compiled without.
    has_varied: AtomicBool,
    /// Bytes of the last plan, about.
    footprint: AtomicUsize,
    prepared: Mutex<Option<Prepared>>,
    /// Programs that are compiled in the background, or were.
    jobs: Mutex<Vec<Arc<Job>>>,
}

/// Bytes that a plan takes besides its nodes, about.
const PLAN_BYTES: usize = 2048;

/// Bytes that planning and compiling take for a node, about: itself in the plan and its segment,
/// what was decided, and its launch.
const NODE_BYTES: usize = 2 * size_of::<Node>() + 1024;

/// Devices in the order in which a graph is offered to them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Preference {
    /// Best first.
    pub devices: Vec<DeviceType>,
    /// Why the first one is.
    pub reason: Reason,
}

/// What the runs of a graph work in on a device, besides the graph's inputs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorkingMemory {
    /// The device.
    pub device: DeviceType,
    /// How much.
    pub bytes: usize,
    /// Bytes of the host's memory in which values of the device wait until they are read again.
    pub offloaded: usize,
    /// Bytes that could be taken there now, where it is known, with those that are set aside for these runs but
    /// not taken yet.
    pub free: Option<u64>,
}

/// A plan with its programs, and the memory that runs of it work in.
struct Prepared {
    epoch: u64,
    plan: Plan,
    stages: Vec<Stage>,
    /// What its programs were compiled with.
    constants: Constants,
    /// Which graph inputs are updated as state.
    writes: Arc<[bool]>,
    /// Where the graph's outputs are.
    outputs: SmallVec<[Source; 1]>,
    /// What the stages compute. After a run, what the next one may overwrite.
    results: SmallVec<[Option<Storage>; 1]>,
    /// Buffers of the stage that is running.
    operands: SmallVec<[Arc<dyn DeviceBuffer>; 4]>,
    targets: SmallVec<[Arc<dyn DeviceBuffer>; 1]>,
    profile: Profile,
    /// What those who look on are told of each stage's launches.
    launches: Vec<Launches>,
    /// What other devices serve for until it is compiled.
    awaited: Vec<Arc<Job>>,
}

impl Prepared {
    /// Why it has to be made again, if it has to.
    fn outdated(&self, epoch: u64) -> Option<Cause> {
        let mut jobs = self.awaited.iter();
        match self.epoch == epoch {
            false => Some(Cause::Outdated),
            true => (jobs.any(|job| job.outcome().is_some())).then_some(Cause::Compiled),
        }
    }

    /// Bytes that it takes, about.
    fn footprint(&self) -> usize {
        let kept = self.stages.iter().map(|stage| stage.program.scratch());
        let kept = kept.filter(|scratch| scratch.kept);
        let nodes = self.plan.graph.nodes().len();
        PLAN_BYTES + nodes * NODE_BYTES + kept.map(|scratch| scratch.bytes).sum::<usize>()
    }
}

/// A segment's program with its operands.
struct Stage {
    device: DeviceId,
    program: Compiled,
    /// What it reads, and whether it updates that as state.
    operands: SmallVec<[(Source, bool); 4]>,
    /// What it computes: a number among the results, and bytes.
    targets: SmallVec<[(usize, usize); 1]>,
    /// Index of its first node in the plan's graph.
    first: usize,
    /// Its first node that must not run twice.
    update: Option<usize>,
    conversions: u64,
    /// What the program works in, and the host's memory in which values wait.
    _scratch: SmallVec<[Lease; 1]>,
}

/// Who looks on at a run.
#[derive(Clone, Copy)]
struct Onlookers<'a> {
    /// Are launches timed for [`Executable::explain`]?
    profiling: bool,
    /// Those who want to know of each launch.
    observers: Option<&'a Observers>,
}

/// Where a value is.
#[derive(Clone, Copy)]
enum Source {
    /// A graph input.
    Input(usize),
    /// A stage's result.
    Result(usize),
}

/// A failure while planning or running, with what it happened to.
enum Attempt {
    Final(RunError),
    Failed(Box<Failure>),
    /// A device was found lost that had an intermediate result: it is computed again.
    Again,
}

struct Failure {
    device: DeviceId,
    error: DeviceError,
    memo: Option<Memo>,
}

impl From<RunError> for Attempt {
    fn from(e: RunError) -> Self {
        Self::Final(e)
    }
}

/// What a run learns of devices that are full. A plan made with it is kept.
#[derive(Default)]
struct RunMemory {
    /// Devices that were out of memory once: they have been asked to free some.
    trimmed: SmallVec<[DeviceId; 2]>,
    /// Devices that were out of memory again, with what they said.
    full: Vec<(DeviceId, String)>,
}

impl Executable {
    pub(crate) fn new(
        devices: Arc<Devices>,
        graph: Graph,
        routing: Routing,
        places: Locations,
        keeps: bool,
    ) -> Self {
        Self {
            devices,
            graph,
            routing,
            places,
            keeps,
            is_checked: false,
            runs_ahead: false,
            cause: Cause::New,
            is_planned: AtomicBool::new(false),
            has_varied: AtomicBool::new(false),
            footprint: AtomicUsize::new(0),
            prepared: Mutex::default(),
            jobs: Mutex::default(),
        }
    }

    /// Runs may return while devices still work, if kernels find no mistakes of the caller's: the
    /// loss of a device meanwhile shows when somebody reads what it computed, and the caller can
    /// compute that again.
    pub(crate) fn running_ahead(mut self, runs_ahead: bool) -> Self {
        self.runs_ahead = runs_ahead;
        self
    }

    /// It is planned because of this.
    pub(crate) fn because_of(mut self, cause: Cause) -> Self {
        self.cause = cause;
        self
    }

    /// Bytes that it takes as it is planned now, about, with the memory that programs keep; 0
    /// before the first run.
    pub(crate) fn footprint(&self) -> usize {
        self.footprint.load(Ordering::Relaxed)
    }

    /// The graph that this runs.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The devices that it may use.
    pub fn routing(&self) -> Routing {
        self.routing
    }

    /// Only the first `count` inputs are new, on the host, in every run. The others stay: that
    /// they have to be brought to a device once does not count when devices are compared.
    pub fn with_fresh_inputs(mut self, count: usize) -> Self {
        let stay = self.graph.inputs().len().saturating_sub(count);
        self.places = std::iter::repeat_n(HOST, count).collect();
        self.places.extend(std::iter::repeat_n(EVERYWHERE, stay));
        self
    }

    /// The caller checks, before each run, the values that kernels would refuse as a mistake,
    /// such as indices: runs need not look for them, and [may be queued](Self::is_queued).
    pub fn with_checked_values(mut self) -> Self {
        self.is_checked = true;
        self
    }

    pub(crate) fn places(&self) -> &Locations {
        &self.places
    }

    /// The devices that the graph is offered to, judged as one product of its size.
    pub fn preference(&self) -> Preference {
        let policy = lock(&self.devices.policy).clone();
        let offer = prefer(&self.graph, &self.request(&policy, &[], &Avoided::new()));
        let works = |id: &DeviceId| !self.devices.slot(*id).owner.is_lost();
        let devices = offer.ids.into_iter().filter(works);
        Preference {
            devices: devices.map(|id| self.devices.info(id).device).collect(),
            reason: offer.reason,
        }
    }

    /// The devices that can run the graph's only operation, in the order in which it is offered to
    /// them.
    pub(crate) fn candidates(&self, custom_kernel: bool) -> Vec<DeviceType> {
        let policy = lock(&self.devices.policy).clone();
        let avoided = &Avoided::new();
        let request = self.request(&policy, &[], avoided);
        let found = candidates(&self.graph, &request, custom_kernel);
        let names = found.into_iter().map(|id| self.devices.info(id).device);
        names.collect()
    }

    /// Runs the graph. Inputs it updates as state are changed in place; outputs are new.
    ///
    /// # Errors
    /// [`RunError`]; a failure of a device becomes one only when no device is left to turn
    /// to, or in strict mode.
    pub fn run(&self, inputs: &[Storage]) -> Result<Vec<Storage>, RunError> {
        let mut outputs = Vec::with_capacity(self.graph.outputs().len());
        self.run_into(&[inputs], &mut outputs)?;
        Ok(outputs)
    }

    /// [`Executable::run`] for replaying: the inputs are those of the lists, one after the
    /// other, and `outputs` is cleared and filled. Storages that were the outputs of an
    /// earlier run, and that nobody else holds, become those of this one.
    ///
    /// # Errors
    /// As [`Executable::run`]; `outputs` is then empty.
    pub fn run_into(
        &self,
        inputs: &[&[Storage]],
        outputs: &mut Vec<Storage>,
    ) -> Result<(), RunError> {
        outputs.clear();
        self.run_and_append(inputs, outputs)
    }

    /// [`Executable::run_into`] that appends to `outputs`, unless it fails.
    pub(crate) fn run_and_append(
        &self,
        inputs: &[&[Storage]],
        outputs: &mut impl Extend<Storage>,
    ) -> Result<(), RunError> {
        let inputs = Inputs(inputs);
        self.check(inputs)?;
        self.persist(|prepared, memory| self.attempt(prepared, inputs, memory, outputs))
    }

    /// Attempts something until it is done or nobody is left to turn to.
    fn persist(
        &self,
        mut attempt: impl FnMut(&mut Option<Prepared>, &RunMemory) -> Result<(), Attempt>,
    ) -> Result<(), RunError> {
        let mut prepared = lock(&self.prepared);
        let mut memory = RunMemory::default();
        loop {
            match attempt(&mut prepared, &memory) {
                Ok(()) => return Ok(()),
                Err(Attempt::Final(e)) => return Err(e),
                Err(Attempt::Again) => *prepared = None,
                Err(Attempt::Failed(failure)) => {
                    self.answer(*failure, &mut memory, &mut prepared)?;
                }
            }
        }
    }

    /// Where each operation would go now, and why; with the times of the runs so far, if
    /// [`Runtime::set_profiling`](crate::Runtime::set_profiling) was on.
    ///
    /// # Errors
    /// No device can run some operation.
    pub fn explain(&self) -> Result<Vec<Explanation>, RunError> {
        self.explain_known(&self.places, &|_| NodeNote::default())
    }

    /// [`Executable::explain`], where more is known of the graph: where its inputs are, and what its nodes
    /// are.
    pub(crate) fn explain_known(
        &self,
        places: &Locations,
        note: &dyn Fn(usize) -> NodeNote,
    ) -> Result<Vec<Explanation>, RunError> {
        let prepared = lock(&self.prepared);
        let epoch = self.devices.journal.epoch();
        let current = prepared.as_ref().filter(|p| p.epoch == epoch);
        let known = Known {
            profile: current.map(|p| &p.profile),
            places,
            note,
        };
        match current {
            Some(p) => Ok(explain(&p.plan, &self.devices, &known)),
            None => Ok(explain(&self.plan(&[])?, &self.devices, &known)),
        }
    }

    /// What a run should take as it would be planned now, by the measured times of devices; `None`
    /// unless those are compared, see [`Runtime::set_costs`](crate::Runtime::set_costs).
    ///
    /// # Errors
    /// No device can run some operation.
    pub fn estimate(&self) -> Result<Option<Estimate>, RunError> {
        let policy = lock(&self.devices.policy).clone();
        estimate(&self.graph, &self.request(&policy, &[], &Avoided::new()))
    }

    /// The graph as it would be run now, after decompositions, and the device of each node.
    ///
    /// # Errors
    /// No device can run some operation.
    pub fn placement(&self) -> Result<(Graph, Vec<DeviceType>), RunError> {
        let Plan {
            graph, assignments, ..
        } = self.plan(&[])?;
        let device = |a: &Assignment| self.devices.info(a.device).device;
        let devices = assignments.iter().map(device).collect();
        Ok((graph, devices))
    }

    /// Do runs, as the last one was planned, return while devices still work? What they compute
    /// can then be the input of further ones before anybody has waited for it.
    pub fn is_queued(&self) -> bool {
        let prepared = lock(&self.prepared);
        let stages = prepared.as_ref().map(|p| &p.stages);
        let are_queued = |stages: &Vec<Stage>| stages.iter().all(|s| s.program.is_queued());
        self.is_checked && stages.is_some_and(are_queued)
    }

    /// Bytes that runs work in, on all devices: the sum of [`Executable::working_memory`]. `None` before it is
    /// planned.
    pub fn working_bytes(&self) -> Option<usize> {
        let working = self.working_memory()?;
        Some(working.iter().map(|working| working.bytes).sum())
    }

    /// What runs work in on each device: intermediate values, and the results that segments hand on or
    /// return, which are kept for the next run to overwrite. `None` before the first run, or
    /// [`load`](Executable::load).
    pub fn working_memory(&self) -> Option<Vec<WorkingMemory>> {
        let prepared = lock(&self.prepared);
        let working = self.working_memory_of(&prepared.as_ref()?.stages);
        Some(working.into_iter().map(|(_, working)| working).collect())
    }

    /// What stages work in on each device.
    fn working_memory_of(&self, stages: &[Stage]) -> Vec<(DeviceId, WorkingMemory)> {
        let mut working: Vec<(DeviceId, usize, u64, usize)> = Vec::new();
        // Of scratch memory from a pool, each size once.
        let mut pooled = HashSet::new();
        for stage in stages {
            let results = stage.targets.iter().map(|(_, bytes)| bytes);
            let mut bytes = results.sum::<usize>();
            let scratch = stage.program.scratch();
            if scratch.kept || pooled.insert((stage.device, scratch.bytes)) {
                bytes += scratch.bytes;
            }
            let leased = scratch.bytes as u64;
            match working.iter_mut().find(|(id, ..)| *id == stage.device) {
                Some(known) => {
                    known.1 += bytes;
                    known.2 += leased;
                    known.3 += scratch.offloaded;
                }
                None => working.push((stage.device, bytes, leased, scratch.offloaded)),
            }
        }
        let of_device = |(id, bytes, leased, offloaded)| {
            let slot = self.devices.slot(id);
            let working = WorkingMemory {
                device: slot.owner.device,
                bytes,
                offloaded,
                free: slot.free_beside(leased),
            };
            (id, working)
        };
        working.into_iter().map(of_device).collect()
    }

    fn check(&self, inputs: Inputs) -> Result<(), RunError> {
        let mut given = inputs.iter();
        for (input, ty) in self.graph.inputs().iter().enumerate() {
            let got = given.next().map_or(0, Storage::bytes);
            let expected = ty.bytes();
            if got != expected {
                return Err(RunError::WrongInput {
                    input,
                    expected,
                    got,
                });
            }
        }
        Ok(())
    }

    fn plan(&self, full: &[(DeviceId, String)]) -> Result<Plan, RunError> {
        self.plan_without(full, &Avoided::new())
    }

    fn plan_without(
        &self,
        full: &[(DeviceId, String)],
        avoided: &Avoided,
    ) -> Result<Plan, RunError> {
        let policy = lock(&self.devices.policy).clone();
        plan(&self.graph, &self.request(&policy, full, avoided))
    }

    fn request<'a>(
        &'a self,
        policy: &'a Policy,
        full: &'a [(DeviceId, String)],
        avoided: &'a Avoided,
    ) -> Request<'a> {
        Request {
            devices: &self.devices,
            policy,
            routing: self.routing,
            places: &self.places,
            full,
            avoided,
        }
    }

    fn attempt(
        &self,
        prepared: &mut Option<Prepared>,
        inputs: Inputs,
        memory: &RunMemory,
        outputs: &mut impl Extend<Storage>,
    ) -> Result<(), Attempt> {
        let current = self.current(prepared, inputs, memory)?;
        let result = self.execute(current, inputs);
        // Buffers must not outlive the run.
        current.operands.clear();
        current.targets.clear();
        if result.is_ok() {
            outputs.extend(current.outputs.iter().filter_map(|source| match *source {
                Source::Input(i) => inputs.get(i).cloned(),
                Source::Result(i) => current.results[i].clone(),
            }));
        }
        if !self.keeps {
            current.results.fill(None);
        }
        result
    }

    /// The plan with its programs, made again if it is outdated.
    fn current<'p>(
        &self,
        prepared: &'p mut Option<Prepared>,
        inputs: Inputs,
        memory: &RunMemory,
    ) -> Result<&'p mut Prepared, Attempt> {
        let epoch = self.devices.journal.epoch();
        let others = prepared.take_if(|p| !p.constants.are_in(inputs)).is_some();
        self.has_varied.fetch_or(others, Ordering::Relaxed);
        let outdated = match others {
            true => Some(Cause::Outdated),
            false => prepared.as_ref().and_then(|p| p.outdated(epoch)),
        };
        if outdated.is_some() {
            *prepared = None;
        }
        Ok(match prepared {
            Some(p) => p,
            none => none.insert(self.prepare(epoch, inputs, memory, outdated)?),
        })
    }

    fn prepare(
        &self,
        epoch: u64,
        inputs: Inputs,
        memory: &RunMemory,
        outdated: Option<Cause>,
    ) -> Result<Prepared, Attempt> {
        let prepared = self.compile(epoch, inputs, memory)?;
        let cause = match self.is_planned.swap(true, Ordering::Relaxed) {
            false => self.cause,
            true => outdated.unwrap_or(Cause::Failed),
        };
        self.devices.journal.planned(&self.graph, cause);
        let bytes = size_of_val(self.graph.nodes()) + prepared.footprint();
        self.footprint.store(bytes, Ordering::Relaxed);
        Ok(prepared)
    }

    fn compile(&self, epoch: u64, inputs: Inputs, memory: &RunMemory) -> Result<Prepared, Attempt> {
        let gallery = &self.devices.journal.gallery;
        let planning = gallery.begin(HostWork::Plan, || "plan");
        let (plan, awaited) = self.plan_to_run(inputs, memory)?;
        drop(planning);
        let graph = &plan.graph;
        let mut sources: SmallVec<[Option<Source>; 8]> = SmallVec::from_elem(None, graph.len());
        for (i, source) in sources[..graph.inputs().len()].iter_mut().enumerate() {
            *source = Some(Source::Input(i));
        }
        // A state is read where it was given.
        let at = |sources: &[Option<Source>], value: ValueId| {
            let root = graph.state_root(value).unwrap_or(value);
            sources[root.index()].ok_or_else(|| RunError::NoDevice {
                op: "graph".to_owned(),
                node: None,
                call: None,
                tried: "a value is computed by no segment".to_owned(),
            })
        };
        let mut writes: SmallVec<[bool; 8]> = SmallVec::from_elem(false, graph.inputs().len());
        let mut stages = Vec::with_capacity(plan.segments.len());
        let mut constants = Constants::default();
        let mut results = 0;
        for segment in &plan.segments {
            let slot = self.devices.slot(segment.device);
            let fail = |e| self.failed(&plan, segment.first, segment.device, e);
            let known = self.constants(segment, inputs);
            let device = slot.owner.device;
            let compiling = gallery.begin(HostWork::Compile, || format!("compile for {device}"));
            let program = self.program(segment, &known).map_err(fail)?;
            drop(compiling);
            constants.extend(segment, known);
            let scratch = program.scratch();
            let mut leases = smallvec![slot.owner.lease(scratch.bytes).map_err(fail)?];
            leases.extend(
                self.lease_of_host(segment, scratch.offloaded)
                    .map_err(fail)?,
            );
            let mut operands = SmallVec::with_capacity(segment.inputs.len());
            for (&value, &write) in segment.inputs.iter().zip(&segment.writes) {
                let source = at(&sources, value)?;
                if let (Source::Input(i), true) = (source, write) {
                    writes[i] = true;
                }
                operands.push((source, write));
            }
            let mut targets = SmallVec::with_capacity(segment.outputs.len());
            for &value in &segment.outputs {
                sources[value.index()] = Some(Source::Result(results));
                targets.push((results, graph.ty(value).bytes()));
                results += 1;
            }
            stages.push(Stage {
                device: segment.device,
                program,
                operands,
                targets,
                first: segment.first,
                update: plan.unrepeatable[segment.nodes()]
                    .iter()
                    .position(|&late| late),
                conversions: segment.conversions() as u64,
                _scratch: leases,
            });
        }
        let outputs = (graph.outputs().iter())
            .map(|&value| at(&sources, value))
            .collect::<Result<_, _>>()?;
        Ok(Prepared {
            epoch,
            stages,
            constants,
            writes: Arc::from(&writes[..]),
            outputs,
            results: SmallVec::from_elem(None, results),
            operands: SmallVec::new(),
            targets: SmallVec::new(),
            profile: Profile::default(),
            launches: plan.segments.iter().map(|_| Launches::default()).collect(),
            awaited,
            plan,
        })
    }

    /// Counts the host's memory in which values of a segment wait. Where there is too little they stay on their device, as if
    /// that could not move them.
    fn lease_of_host(&self, segment: &Segment, bytes: usize) -> Result<Option<Lease>, DeviceError> {
        let is_host = |id: &DeviceId| self.devices.info(*id).device == DeviceType::Cpu;
        let host = self.devices.ids().find(is_host).filter(|_| bytes > 0);
        let lease = host.map(|id| self.devices.slot(id).owner.lease(bytes));
        lease.transpose().map_err(|e| {
            let device = self.devices.info(segment.device).device;
            let error = DeviceError::new(device, FailureClass::Unsupported, e.message);
            let mut nodes = segment.graph.nodes().iter();
            match nodes.position(|node| node.op.def().offloads()) {
                Some(at) => error.at(at, segment.graph.nodes()[at].op.name()),
                None => error,
            }
        })
    }

    /// A failure of a segment, of which `first` is the first node.
    fn failed(
        &self,
        plan: &Plan,
        first: usize,
        device: DeviceId,
        mut error: DeviceError,
    ) -> Attempt {
        let node = error.node.and_then(|i| plan.graph.nodes().get(first + i));
        error.node = plan.origin(first, error.node);
        Attempt::Failed(Box::new(Failure {
            device,
            memo: node.map(|n| plan.graph.with_signature(n, memo)),
            error,
        }))
    }

    fn execute(&self, prepared: &mut Prepared, inputs: Inputs) -> Result<(), Attempt> {
        let writes = prepared.writes.clone();
        let _held = Held::acquire(inputs, &writes)?;
        let profiling = self.devices.profiling.load(Ordering::Relaxed);
        let gallery = &self.devices.journal.gallery;
        let _span = gallery.begin(HostWork::Run, || "run");
        let observers = gallery.observers().filter(Observers::want_launches);
        let onlookers = Onlookers {
            profiling,
            observers: observers.as_ref(),
        };
        if prepared.stages.iter().any(|stage| stage.update.is_some()) {
            self.reserve(prepared)?;
        }
        // Was an update launched that must not run twice?
        let mut is_past = false;
        for index in 0..prepared.stages.len() {
            let ran = self.stage(prepared, index, inputs, onlookers, &mut is_past);
            ran.map_err(|failed| match is_past {
                true => self.lose_states(inputs, &writes, failed),
                false => failed,
            })?;
        }
        if profiling {
            prepared.profile.count_run();
        }
        Ok(())
    }

    /// Runs a stage.
    fn stage(
        &self,
        prepared: &mut Prepared,
        index: usize,
        inputs: Inputs,
        onlookers: Onlookers<'_>,
        is_past: &mut bool,
    ) -> Result<(), Attempt> {
        let stage = &prepared.stages[index];
        let writes = stage.operands.iter().any(|(_, write)| *write);
        if writes {
            let settled = self.devices.slot(stage.device).backend.settle();
            settled.map_err(|e| self.failed(&prepared.plan, stage.first, stage.device, e))?;
        }
        self.gather(prepared, index, inputs)?;
        let Prepared {
            plan,
            stages,
            operands,
            targets,
            profile,
            launches,
            ..
        } = prepared;
        let stage = &stages[index];
        let launches = &mut launches[index];
        let slot = self.devices.slot(stage.device);
        // States that cannot be computed again are not left to a device that nobody looks at.
        // A stage that has others behind it would give them what is poisoned time and again.
        let must_be_right = writes || stages.len() > 1;
        let ahead = self.runs_ahead
            && stage.update.is_none()
            && !(must_be_right && stage.program.finds_mistakes());
        let Onlookers {
            profiling,
            observers,
        } = onlookers;
        // What a device is given at once it works off faster than one by one.
        let at_once = stage.program.is_queued() && (self.is_checked || ahead);
        let observes_each = observers.is_some() && (!at_once || launches.are_to_be_timed());
        let is_timed = profiling || observes_each;
        let run = |probe: &dyn Probe| match (self.is_checked, ahead) {
            _ if is_timed => stage.program.run(operands, targets, probe),
            (true, _) => stage.program.queue(operands, targets, probe),
            (false, true) => stage.program.run_ahead(operands, targets, probe),
            (false, false) => stage.program.run(operands, targets, probe),
        };
        let mut watched = |probe: &dyn Probe| match stage.update {
            None => run(probe),
            Some(update) => {
                let watch = Watch::new(probe, update);
                let ran = run(&watch);
                *is_past |= watch.is_past();
                ran
            }
        };
        let device = slot.owner.device;
        let ran = match observers {
            _ if is_timed => {
                let mut timer = Timer::new(stage.first);
                if profiling {
                    timer = timer.noting(profile);
                }
                if let Some(observers) = observers {
                    timer = timer.telling(observers, &plan.graph, device, launches);
                }
                let begin = Instant::now();
                let ran = watched(&timer);
                if ran.is_ok() {
                    timer.finish(plan.segments[index].graph.nodes().len(), begin);
                }
                ran
            }
            Some(observers) => watched(&Whole(launches.watcher(device, observers))),
            None => watched(&NoProbe),
        };
        if stage.update.is_none() || *is_past {
            for &(source, write) in &stage.operands {
                if let (Source::Input(i), true) = (source, write)
                    && let Some(state) = inputs.get(i)
                {
                    state.wrote(&slot.owner);
                }
            }
        }
        ran.map_err(|e| self.failed(plan, stage.first, stage.device, e))?;
        slot.runs.fetch_add(1, Ordering::Relaxed);
        slot.owner.accessed(operands.len() + targets.len());
        self.devices.journal.count_conversions(stage.conversions);
        (self.devices.journal).count_computed(plan.segments[index].nodes().len() as u64);
        Ok(())
    }

    /// Brings a stage's operands to its device, and makes room for what it computes.
    fn gather(&self, prepared: &mut Prepared, index: usize, inputs: Inputs) -> Result<(), Attempt> {
        let Prepared {
            plan,
            stages,
            results,
            operands,
            targets,
            ..
        } = prepared;
        let stage = &stages[index];
        let slot = self.devices.slot(stage.device);
        let (owner, memory) = (&slot.owner, slot.backend.memory());
        let fail = |e| self.failed(plan, stage.first, stage.device, e);
        operands.clear();
        for &(source, write) in &stage.operands {
            let storage = match source {
                Source::Input(i) => inputs.get(i),
                Source::Result(i) => results[i].as_ref(),
            };
            let buffer = match storage {
                Some(storage) => storage.on(owner, memory, write),
                None => Err(StorageError::Gone),
            };
            operands.push(
                buffer.map_err(|e| match (e.on_device(owner.device), source) {
                    (Some(e), _) => fail(e),
                    (None, Source::Input(input)) => Attempt::Final(RunError::DataLost {
                        input,
                        during: None,
                    }),
                    (None, Source::Result(_)) => Attempt::Again,
                })?,
            );
        }
        targets.clear();
        for (k, &(result, bytes)) in stage.targets.iter().enumerate() {
            let room = slot.room_for(&mut results[result], bytes);
            targets.push(room.map_err(|e| fail(plan.segments[index].without_room(k, e)))?);
        }
        Ok(())
    }

    /// Makes room for what all stages compute, so that none fails for want of it behind an update
    /// that must not run twice.
    fn reserve(&self, prepared: &mut Prepared) -> Result<(), Attempt> {
        let plan = &prepared.plan;
        for (stage, segment) in prepared.stages.iter().zip(&plan.segments) {
            let slot = self.devices.slot(stage.device);
            for (k, &(result, bytes)) in stage.targets.iter().enumerate() {
                let room = slot.room_for(&mut prepared.results[result], bytes);
                let no_room = |e| segment.without_room(k, e);
                room.map_err(|e| self.failed(plan, stage.first, stage.device, no_room(e)))?;
            }
        }
        Ok(())
    }

    /// What a failure is behind the first update that must not run twice: the loss of all states
    /// that the graph updates.
    fn lose_states(&self, inputs: Inputs, writes: &[bool], failed: Attempt) -> Attempt {
        let during = match failed {
            Attempt::Failed(failure) => {
                let Failure { device, error, .. } = *failure;
                if error.class.loses_device() {
                    self.devices.slot(device).owner.set_lost();
                }
                self.devices.journal.count_fault(&error);
                Some(Box::new(error))
            }
            Attempt::Final(_) | Attempt::Again => None,
        };
        let mut first = None;
        for (input, (state, &write)) in inputs.iter().zip(writes).enumerate() {
            if write {
                state.lose();
                first.get_or_insert(input);
            }
        }
        Attempt::Final(RunError::DataLost {
            input: first.unwrap_or_default(),
            during,
        })
    }

    /// Decides what follows from a failure: `Ok` to try again.
    fn answer(
        &self,
        failure: Failure,
        memory: &mut RunMemory,
        prepared: &mut Option<Prepared>,
    ) -> Result<(), RunError> {
        let Failure {
            device,
            error,
            memo,
        } = failure;
        let journal = &self.devices.journal;
        let is_final = error.class == FailureClass::Caller || self.routing.strict;
        if error.class.loses_device() {
            self.devices.slot(device).owner.set_lost();
        }
        if is_final {
            journal.count_fault(&error);
            return Err(RunError::Device(error));
        }
        // What only was there for this plan goes before more is asked for.
        *prepared = None;
        // Each answer rules something out that was not before, so that this ends.
        match error.class {
            FailureClass::Lost | FailureClass::Timeout | FailureClass::Caller => {}
            FailureClass::Unsupported if self.devices.learn_unsupported(device, memo.as_ref()) => {}
            FailureClass::OutOfMemory { never_fits: false }
                if !memory.trimmed.contains(&device) =>
            {
                memory.trimmed.push(device);
                self.devices.free_caches(device);
            }
            FailureClass::OutOfMemory { .. } | FailureClass::Unsupported => {
                memory.full.push((device, error.message.clone()));
            }
        }
        let to = self.next_device(memo.as_ref(), memory);
        journal.fell_back(Fallback { error, to });
        Ok(())
    }

    /// Where what failed goes now, by the new plan.
    fn next_device(&self, failed: Option<&Memo>, memory: &RunMemory) -> Option<DeviceType> {
        let plan = self.plan(&memory.full).ok()?;
        let is_it = |node: &Node| {
            failed.is_some_and(|failed| plan.graph.with_signature(node, memo) == *failed)
        };
        // What is made of others there is not in the plan, but what comes last is.
        let at = plan.graph.nodes().iter().position(is_it);
        let assignment = at.map(|at| &plan.assignments[at]);
        let assignment = assignment.or(plan.assignments.last())?;
        Some(self.devices.info(assignment.device).device)
    }
}
