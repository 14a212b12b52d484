//! What is told of a graph and its plan: where operations go and why, how long they take, what they work in.

use std::collections::HashSet;

use rustorch_ir::Graph;

use super::{Executable, Stage};
use crate::estimate::Locations;
use crate::journal::lock;
use crate::placement::{Assignment, DeviceId};
use crate::planner::{Avoided, Estimate, Plan, estimate};
use crate::trace::{Known, explain};
use crate::{DeviceType, Explanation, NodeNote, RunError};

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

impl Executable {
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
    pub(super) fn working_memory_of(&self, stages: &[Stage]) -> Vec<(DeviceId, WorkingMemory)> {
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
}
