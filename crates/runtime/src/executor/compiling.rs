//! Programs that take long to compile: other devices serve until they are there.

use std::ops::Deref;
use std::sync::Arc;

use super::{Executable, Inputs, RunMemory};
use crate::background::Job;
use crate::devices::memo;
use crate::journal::lock;
use crate::planner::{Avoided, Plan};
use crate::segment::Segment;
use crate::{DeviceError, FailureClass, Fallback, HostBuffer, Program, RunError};

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
    /// The plan for the next run, with what is compiled meanwhile: as [`Self::plan`], but that
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

    /// Begins what a plan needs and nobody has begun; what of its needs is not ready.
    fn begin(&self, plan: &Plan, inputs: Inputs) -> Vec<Arc<Job>> {
        let mut needed = Vec::new();
        for segment in &plan.segments {
            let constants = self.constants(segment, inputs);
            let job = self.job(segment, &constants);
            if job.is_none() && self.is_quick(segment, &constants) {
                continue;
            }
            needed.push(job.unwrap_or_else(|| {
                let origins = plan.assignments[segment.nodes()].iter();
                let job = Arc::new(Job::new(
                    segment.device,
                    self.devices.slot(segment.device).backend.clone(),
                    self.devices.journal.clone(),
                    segment.graph.clone(),
                    constants,
                    origins.map(|a| a.origin).collect(),
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

    /// Failures to compile that are new, of which devices learn: each reason once, for whatever keeps
    /// one program from being compiled may keep all.
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
            let mut all = plan.assignments.iter();
            let next = all.find(|a| a.origins().any(|origin| Some(origin) == error.node));
            let to = next.map(|a| self.devices.info(a.device).device);
            self.devices.journal.fell_back(Fallback { error, to });
        }
    }
}
