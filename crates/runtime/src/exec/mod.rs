//! Runs graphs, and handles failures.

mod compiling;
mod constants;
pub(crate) mod explain;
mod failing;
mod inputs;
mod loading;
mod profile;
mod reporting;
mod running;
mod units;
mod watch;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rustorch_ir::{Graph, Node, TensorType};
use smallvec::SmallVec;

use self::compiling::Compiled;
use self::constants::Constants;
use self::failing::{Attempt, RunMemory};
use self::inputs::Inputs;
use crate::devices::Devices;
use crate::devices::background::Job;
use crate::devices::placement::DeviceId;
use crate::devices::policy::Policy;
use crate::exec::profile::{Launches, Profile};
use crate::journal::{Cause, Lease, lock};
use crate::plan::estimate::{EVERYWHERE, HOST, Locations};
use crate::plan::planner::{Avoided, Plan, Request, candidates, plan, prefer};
use crate::{DeviceBuffer, DeviceType, Reason, Routing, RunError, Storage};

pub use loading::Loaded;
pub use reporting::WorkingMemory;
pub use units::PreferredUnits;

/// A graph that is planned once and run often.
///
/// Repeated runs of a plan allocate no memory: buffers are kept, and results without other handles
/// are overwritten.
pub struct Executable {
    devices: Arc<Devices>,
    graph: Graph,
    /// Bytes of each input.
    input_bytes: SmallVec<[usize; 4]>,
    routing: Routing,
    /// The places of its inputs when it is planned.
    places: Locations,
    /// Are results kept for the next run to overwrite?
    keeps: bool,
    /// Has the caller checked all values?
    is_checked: bool,
    /// May runs that find no mistakes return while devices still work?
    pub(crate) runs_ahead: bool,
    /// Why it is planned for the first time: another one may have been before.
    cause: Cause,
    /// Whether it was planned yet.
    is_planned: AtomicBool,
    /// Whether it was given other memory than programs were compiled with. Then they are compiled without.
    has_varied: AtomicBool,
    /// Bytes of the last plan, about.
    footprint: AtomicUsize,
    prepared: Mutex<Option<Prepared>>,
    /// Programs that are compiled in the background, or were.
    jobs: Mutex<Vec<Arc<Job>>>,
}

/// Bytes that a plan takes besides its nodes, about.
const PLAN_BYTES: usize = 2048;

/// Bytes that planning and compiling take for a node or an input, about: itself in the plan and its segment, decisions,
/// and its launch.
const NODE_BYTES: usize = 2 * size_of::<Node>() + 1024;

/// Devices in the order in which a graph is offered to them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Preference {
    /// Best first.
    pub devices: Vec<DeviceType>,
    /// The reason for the first one.
    pub reason: Reason,
}

/// A plan with its programs, and the memory that runs of it work in.
struct Prepared {
    epoch: u64,
    plan: Plan,
    stages: Vec<Stage>,
    /// The constants that its programs were compiled with.
    constants: Constants,
    /// The graph inputs that are updated as state.
    writes: Arc<[bool]>,
    /// The places of the graph's outputs.
    outputs: SmallVec<[Source; 1]>,
    /// The results of the stages. After a run, results that the next one may overwrite.
    results: SmallVec<[Option<Storage>; 1]>,
    /// Buffers of the stage that is running.
    operands: SmallVec<[Arc<dyn DeviceBuffer>; 4]>,
    targets: SmallVec<[Arc<dyn DeviceBuffer>; 1]>,
    profile: Profile,
    /// The observers' description of each stage's launches.
    launches: Vec<Launches>,
    /// The stages that other devices run until it is compiled.
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
        let (nodes, inputs) = (self.plan.graph.nodes(), self.plan.graph.inputs());
        let count = nodes.len() + inputs.len();
        PLAN_BYTES + count * NODE_BYTES + kept.map(|scratch| scratch.bytes).sum::<usize>()
    }
}

/// A segment's program with its operands.
struct Stage {
    device: DeviceId,
    program: Compiled,
    /// Its inputs, and whether it updates them as state.
    operands: SmallVec<[(Source, bool); 4]>,
    /// Its results: a number among the results, and bytes.
    targets: SmallVec<[(usize, usize); 1]>,
    /// Index of its first node in the plan's graph.
    first: usize,
    /// Its first node that must not run twice.
    update: Option<usize>,
    conversions: u64,
    /// The program's working memory, and host memory of offloaded values.
    _scratch: SmallVec<[Lease; 1]>,
}

/// The place of a value.
#[derive(Clone, Copy)]
enum Source {
    /// A graph input.
    Input(usize),
    /// A stage's result.
    Result(usize),
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
            input_bytes: graph.inputs().iter().map(TensorType::bytes).collect(),
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

    /// Runs may return while devices still work, if kernels find no mistakes of the caller's. A
    /// loss of the device then shows when its results are read, and the caller can compute them
    /// again.
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

    /// In every run, only the first `count` inputs are new, and on the host. The others stay, so
    /// copying them to a device once does not count when devices are compared.
    pub fn with_fresh_inputs(mut self, count: usize) -> Self {
        let stay = self.graph.inputs().len().saturating_sub(count);
        self.places = std::iter::repeat_n(HOST, count).collect();
        self.places.extend(std::iter::repeat_n(EVERYWHERE, stay));
        self
    }

    /// The caller checks the values that kernels would reject, such as indices, before each run. So
    /// runs need not check them, and [may be queued](Self::is_queued).
    pub fn with_checked_values(mut self) -> Self {
        self.is_checked = true;
        self
    }

    pub(crate) fn places(&self) -> &Locations {
        &self.places
    }

    /// The order of devices for the graph, judged as one product of its size.
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
    /// Fails with [`RunError`]. A device's failure becomes one only in strict mode, or if no other
    /// device is left.
    pub fn run(&self, inputs: &[Storage]) -> Result<Vec<Storage>, RunError> {
        let mut outputs = Vec::with_capacity(self.graph.outputs().len());
        self.run_into(&[inputs], &mut outputs)?;
        Ok(outputs)
    }

    /// [`Executable::run`] for repeated runs: the inputs are concatenated lists, and `outputs` is
    /// cleared and filled. Storages from an earlier run without another handle are reused.
    ///
    /// # Errors
    /// The same errors as [`Executable::run`]. `outputs` is then empty.
    pub fn run_into(
        &self,
        inputs: &[&[Storage]],
        outputs: &mut Vec<Storage>,
    ) -> Result<(), RunError> {
        outputs.clear();
        self.run_and_give(inputs, &mut |output| outputs.push(output))
    }

    /// [`Executable::run_into`] that calls `give` with each output, unless it fails.
    pub(crate) fn run_and_give(
        &self,
        inputs: &[&[Storage]],
        give: &mut impl FnMut(Storage),
    ) -> Result<(), RunError> {
        let inputs = Inputs(inputs);
        self.check(inputs)?;
        self.persist(|prepared, memory| self.attempt(prepared, inputs, memory, give))
    }

    /// Attempts a step until it is done or no device is left.
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

    /// With the last plan, do runs return while devices still work? Their results may be inputs of
    /// later runs before anyone waits for them.
    pub fn is_queued(&self) -> bool {
        let prepared = lock(&self.prepared);
        let stages = prepared.as_ref().map(|p| &p.stages);
        let are_queued = |stages: &Vec<Stage>| stages.iter().all(|s| s.program.is_queued());
        self.is_checked && stages.is_some_and(are_queued)
    }

    fn check(&self, inputs: Inputs) -> Result<(), RunError> {
        let mut given = inputs.iter();
        for (input, &expected) in self.input_bytes.iter().enumerate() {
            let got = given.next().map_or(0, Storage::bytes);
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
            reports: false,
        }
    }

    fn attempt(
        &self,
        prepared: &mut Option<Prepared>,
        inputs: Inputs,
        memory: &RunMemory,
        give: &mut impl FnMut(Storage),
    ) -> Result<(), Attempt> {
        let current = self.current(prepared, inputs, memory)?;
        let result = self.execute(current, inputs);
        // Buffers must not outlive the run.
        current.operands.clear();
        current.targets.clear();
        if result.is_ok() {
            let outputs = current.outputs.iter().filter_map(|source| match *source {
                Source::Input(i) => inputs.get(i).cloned(),
                Source::Result(i) => current.results[i].clone(),
            });
            outputs.for_each(give);
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
}
