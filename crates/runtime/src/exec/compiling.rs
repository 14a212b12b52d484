//! Programs of a plan. If one takes long to compile, other devices serve until it is ready.

use std::ops::Deref;
use std::sync::Arc;

use rustorch_ir::ValueId;
use smallvec::{SmallVec, smallvec};

use super::constants::Constants;
use super::failing::{Attempt, RunMemory};
use super::inputs::Inputs;
use super::{Executable, Prepared, Source, Stage};
use crate::devices::background::Job;
use crate::devices::memo;
use crate::devices::placement::DeviceId;
use crate::exec::profile::{Launches, Profile};
use crate::journal::{Lease, lock};
use crate::plan::planner::{Avoided, Plan};
use crate::plan::segment::Segment;
use crate::{
    DeviceError, DeviceType, FailureClass, Fallback, HostBuffer, HostWork, Program, RunError,
};

/// A program of one plan, or one that later plans find again.
pub(super) enum Compiled {
    Own(Box<dyn Program>),
    Kept(Arc<dyn Program>),
}

impl Deref for Compiled {
    type Target = dyn Program;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Own(program) => &**program,
            Self::Kept(program) => &**program,
        }
    }
}

impl Executable {
    /// Plans, and compiles the plan's programs.
    pub(super) fn compile(
        &self,
        epoch: u64,
        inputs: Inputs,
        memory: &RunMemory,
    ) -> Result<Prepared, Attempt> {
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

    /// Counts the host's memory in which values of a segment wait. If host memory is short they stay on their
    /// device, as if it did not support offloading.
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

    /// The plan for the next run, with compilation in the background: as [`Self::plan`], but
    /// segments whose program is not ready go to the next device.
    pub(super) fn plan_to_run(
        &self,
        inputs: Inputs,
        memory: &RunMemory,
    ) -> Result<(Plan, Vec<Arc<Job>>), RunError> {
        // In strict mode there is no next one.
        if self.routing.strict || !self.devices.compile_in_background() {
            return Ok((self.plan(&memory.full)?, Vec::new()));
        }
        let failures = self.failures();
        let mut avoided = Avoided::new();
        let plan = self.plan_with(memory, &mut avoided, |segment| {
            let job = self.job(segment, &self.constants(segment, inputs))?;
            let error = job.outcome()?.as_ref().err()?;
            Some(format!("compiling failed: {}", error.message))
        })?;
        self.tell(failures, &plan);
        let awaited = self.begin(&plan, inputs);
        if awaited.is_empty() {
            return Ok((plan, awaited));
        }
        let served = self.plan_with(memory, &mut avoided, |segment| {
            let constants = self.constants(segment, inputs);
            let is_ready = match self.job(segment, &constants) {
                Some(job) => job.outcome().is_some(),
                None => self.is_quick(segment, &constants),
            };
            (!is_ready).then(|| "being compiled in the background".to_owned())
        });
        match served {
            Ok(served) => Ok((served, awaited)),
            // Nobody else can run it: it has to be waited for.
            Err(_) => Ok((plan, Vec::new())),
        }
    }

    /// A plan without segments that there is a reason to avoid.
    fn plan_with(
        &self,
        memory: &RunMemory,
        avoided: &mut Avoided,
        why: impl Fn(&Segment) -> Option<String>,
    ) -> Result<Plan, RunError> {
        loop {
            let plan = self.plan_without(&memory.full, avoided)?;
            let before = avoided.len();
            for segment in &plan.segments {
                if let Some(why) = why(segment) {
                    plan.avoid(segment, &self.graph, &why, avoided);
                }
            }
            if avoided.len() == before {
                return Ok(plan);
            }
        }
    }

    /// The program of a segment with these constants, from the background if it was begun there.
    pub(super) fn program(
        &self,
        segment: &Segment,
        constants: &[Option<HostBuffer>],
    ) -> Result<Compiled, DeviceError> {
        match self.job(segment, constants) {
            Some(job) => {
                let outcome = self.devices.compiler.wait_for(&job);
                outcome.clone().map(Compiled::Kept)
            }
            None => {
                let backend = self.devices.backend(segment.device);
                let program = backend.compile_with(&segment.graph, constants);
                program.map(Compiled::Own)
            }
        }
    }

    /// Does compiling a segment take no longer than on other devices?
    fn is_quick(&self, segment: &Segment, constants: &[Option<HostBuffer>]) -> bool {
        let slot = self.devices.slot(segment.device);
        let is_known = || slot.backend.has_compiled(&segment.graph, constants);
        slot.compilation.is_none() || is_known()
    }

    /// The job that compiles a segment with these constants, if one was begun.
    fn job(&self, segment: &Segment, constants: &[Option<HostBuffer>]) -> Option<Arc<Job>> {
        let jobs = lock(&self.jobs);
        let mut jobs = jobs.iter();
        let job = jobs.find(|job| job.compiles(segment.device, &segment.graph, constants));
        job.cloned()
    }

    /// Starts the compilations that a plan needs and that were not started. Returns those that are
    /// not ready.
    fn begin(&self, plan: &Plan, inputs: Inputs) -> Vec<Arc<Job>> {
        let mut needed = Vec::new();
        for segment in &plan.segments {
            let constants = self.constants(segment, inputs);
            let job = self.job(segment, &constants);
            if job.is_none() && self.is_quick(segment, &constants) {
                continue;
            }
            needed.push(job.unwrap_or_else(|| {
                let origins = plan.origins[segment.nodes()].iter();
                let job = Arc::new(Job::new(
                    segment.device,
                    self.devices.slot(segment.device).backend.clone(),
                    self.devices.journal.clone(),
                    segment.graph.clone(),
                    constants,
                    origins.map(|of| of[0]).collect(),
                ));
                self.devices.compiler.start(&job);
                job
            }));
        }
        // Failures are remembered, so that nothing fails twice; what else is not needed goes.
        let mut jobs = lock(&self.jobs);
        jobs.retain(|job| matches!(job.outcome(), Some(Err(_))));
        jobs.extend(needed.iter().cloned());
        needed.retain(|job| job.outcome().is_none());
        needed
    }

    /// New failures to compile, which devices remember. Each reason comes once, since one cause may
    /// keep all programs from being compiled.
    fn failures(&self) -> Vec<DeviceError> {
        let mut new: Vec<DeviceError> = Vec::new();
        for job in lock(&self.jobs).iter() {
            let Some(mut error) = job.failure().cloned() else {
                continue;
            };
            let node = error.node.and_then(|node| job.graph.nodes().get(node));
            if error.class.loses_device() {
                self.devices.slot(job.device).owner.set_lost();
            }
            if error.class == FailureClass::Unsupported {
                let memo = node.map(|node| job.graph.with_signature(node, memo));
                self.devices.learn_unsupported(job.device, memo.as_ref());
            }
            error.node = error
                .node
                .and_then(|node| job.origins.get(node))
                .or(job.origins.first())
                .copied();
            let same = |e: &DeviceError| {
                (e.device, e.class, &e.message) == (error.device, error.class, &error.message)
            };
            if !new.iter().any(same) {
                new.push(error);
            }
        }
        new
    }

    /// Records failures to compile, with where the work goes by `plan`.
    fn tell(&self, failures: Vec<DeviceError>, plan: &Plan) {
        for error in failures {
            let mut all = plan.assignments.iter().zip(&plan.origins);
            let next = all.find(|(_, of)| of.iter().any(|&origin| Some(origin) == error.node));
            let to = next.map(|(a, _)| self.devices.info(a.device).device);
            self.devices.journal.fell_back(Fallback { error, to });
        }
    }
}
