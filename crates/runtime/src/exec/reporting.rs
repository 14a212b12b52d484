//! Descriptions of a graph and its plan: devices of operations with reasons, times, and working memory.

use std::collections::HashSet;

use rustorch_ir::Graph;
use rustorch_ir::passes::Changes;

use super::{Executable, Stage};
use crate::devices::placement::{Assignment, DeviceId};
use crate::exec::explain::{Known, explain};
use crate::journal::lock;
use crate::plan::estimate::Locations;
use crate::plan::planner::{Avoided, Estimate, Plan, Request, estimate, plan};
use crate::{DeviceType, Explanation, NodeNote, RunError};

/// The working memory of a graph's runs on a device, besides the graph's inputs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorkingMemory {
    /// The device.
    pub device: DeviceType,
    /// Number of bytes.
    pub bytes: usize,
    /// Bytes of the host's memory in which values of the device wait until they are read again.
    pub offloaded: usize,
    /// Bytes that are free there now, if known. They include bytes that are reserved for these
    /// runs.
    pub free: Option<u64>,
}

impl Executable {
    /// The current device of each operation, and why; with the times of the runs so far, if
    /// [`Runtime::set_profiling`](crate::Runtime::set_profiling) was on.
    ///
    /// # Errors
    /// Fails if no device can run some operation.
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

    /// The passes of planning, in order, with their changes of the graph.
    ///
    /// # Errors
    /// Fails if no device can run some operation.
    pub fn passes(&self) -> Result<Vec<Changes>, RunError> {
        let policy = lock(&self.devices.policy).clone();
        let avoided = Avoided::new();
        let request = Request {
            reports: true,
            ..self.request(&policy, &[], &avoided)
        };
        Ok(plan(&self.graph, &request)?.changes)
    }

    /// The expected time of a run with the current plan, by the measured speed of devices; `None`
    /// unless those are compared, see [`Runtime::set_costs`](crate::Runtime::set_costs).
    ///
    /// # Errors
    /// Fails if no device can run some operation.
    pub fn estimate(&self) -> Result<Option<Estimate>, RunError> {
        let policy = lock(&self.devices.policy).clone();
        estimate(&self.graph, &self.request(&policy, &[], &Avoided::new()))
    }

    /// The graph after decompositions, and the device of each node.
    ///
    /// # Errors
    /// Fails if no device can run some operation.
    pub fn placement(&self) -> Result<(Graph, Vec<DeviceType>), RunError> {
        let Plan {
            graph, assignments, ..
        } = self.plan(&[])?;
        let device = |a: &Assignment| self.devices.info(a.device).device;
        let devices = assignments.iter().map(device).collect();
        Ok((graph, devices))
    }

    /// Bytes of working memory on all devices: the sum of [`Executable::working_memory`]. `None`
    /// before it is planned.
    pub fn working_bytes(&self) -> Option<usize> {
        let working = self.working_memory()?;
        Some(working.iter().map(|working| working.bytes).sum())
    }

    /// The working memory of runs on each device: intermediate values, and results of segments,
    /// which the next run overwrites. `None` before the first run, or [`load`](Executable::load).
    pub fn working_memory(&self) -> Option<Vec<WorkingMemory>> {
        let prepared = lock(&self.prepared);
        let working = self.working_memory_of(&prepared.as_ref()?.stages);
        Some(working.into_iter().map(|(_, working)| working).collect())
    }

    /// The working memory of stages on each device.
    pub(super) fn working_memory_of(&self, stages: &[Stage]) -> Vec<(DeviceId, WorkingMemory)> {
        let mut working: Vec<(DeviceId, usize, u64, usize)> = Vec::new();
        // Scratch memory from a pool counts once for each size.
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
}
