//! Programs that take long to compile: other devices serve until they are there.

use std::sync::Arc;

use super::{Executable, RunMemory};
use crate::background::Job;
use crate::devices::memo;
use crate::journal::lock;
use crate::planner::{Avoided, Plan};
use crate::segment::Segment;
use crate::{DeviceError, FailureClass, Fallback, HostBuffer, Program, RunError};

impl Executable {
    /// The plan for the next run, with what is compiled meanwhile: as [`Self::plan`], but that
    /// segments whose program is not ready go to the next device.
    pub(super) fn plan_to_run(
        &self,
        memory: &RunMemory,
    ) -> Result<(Plan, Vec<Arc<Job>>), RunError> {
        // In strict mode there is no next one.
        if self.routing.strict || !self.devices.compile_slowly() {
            return Ok((self.plan(&memory.full)?, Vec::new()));
        }
        let failures = self.failures();
        let mut avoided = Avoided::new();
        let plan = self.plan_with(memory, &mut avoided, |segment| {
            let job = self.job(segment)?;
            let error = job.outcome()?.as_ref().err()?;
            Some(format!("compiling failed: {}", error.message))
        })?;
        self.tell(failures, &plan);
        let awaited = self.begin(&plan);
        if awaited.is_empty() {
            return Ok((plan, awaited));
        }
        let served = self.plan_with(memory, &mut avoided, |segment| {
            let is_ready = match self.job(segment) {
                Some(job) => job.outcome().is_some(),
                None => self.is_quick(segment),
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

    /// The program of a segment, from the background if it was begun there.
    /// Others are compiled with these constants.
    pub(super) fn program(
        &self,
        segment: &Segment,
        constants: &[Option<HostBuffer>],
    ) -> Result<Arc<dyn Program>, DeviceError> {
        match self.job(segment) {
            Some(job) => self.devices.compiler.wait_for(&job).clone(),
            None => {
                let backend = self.devices.backend(segment.device);
                let program = backend.compile_with(&segment.graph, constants);
                program.map(Arc::from)
            }
        }
    }

    /// Does compiling a segment take no longer than on other devices?
    fn is_quick(&self, segment: &Segment) -> bool {
        let slot = self.devices.slot(segment.device);
        slot.compilation.is_none() || slot.backend.has_compiled(&segment.graph)
    }

    /// The job that compiles a segment, if one was begun.
    fn job(&self, segment: &Segment) -> Option<Arc<Job>> {
        let jobs = lock(&self.jobs);
        let mut jobs = jobs.iter();
        let is_it = |job: &&Arc<Job>| job.device == segment.device && job.graph == segment.graph;
        jobs.find(is_it).cloned()
    }

    /// Begins what a plan needs and nobody has begun; what of its needs is not ready.
    fn begin(&self, plan: &Plan) -> Vec<Arc<Job>> {
        let mut needed = Vec::new();
        for segment in &plan.segments {
            let job = self.job(segment);
            if job.is_none() && self.is_quick(segment) {
                continue;
            }
            needed.push(job.unwrap_or_else(|| {
                let origins = plan.assignments[segment.nodes()].iter();
                let origins = origins.map(|a| a.origin).collect();
                let backend = self.devices.slot(segment.device).backend.clone();
                let graph = segment.graph.clone();
                let job = Arc::new(Job::new(segment.device, backend, graph, origins));
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

    /// Failures to compile that are new, of which devices learn.
    fn failures(&self) -> Vec<DeviceError> {
        let mut new = Vec::new();
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
            new.push(error);
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
