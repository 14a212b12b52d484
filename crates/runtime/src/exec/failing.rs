//! The reaction to failures: another attempt with another plan.

use rustorch_ir::Node;
use smallvec::SmallVec;

use super::{Executable, Prepared};
use crate::devices::placement::DeviceId;
use crate::devices::{Memo, memo};
use crate::plan::planner::Plan;
use crate::{DeviceError, DeviceType, FailureClass, Fallback, RunError};

/// A failure while planning or running, with its place.
pub(super) enum Attempt {
    Final(RunError),
    Failed(Box<Failure>),
    /// A device was found lost that had an intermediate result: it is computed again.
    Again,
}

pub(super) struct Failure {
    pub(super) device: DeviceId,
    pub(super) error: DeviceError,
    memo: Option<Memo>,
}

impl From<RunError> for Attempt {
    fn from(e: RunError) -> Self {
        Self::Final(e)
    }
}

/// The devices that a run found full. A plan made with it is kept.
#[derive(Default)]
pub(super) struct RunMemory {
    /// Devices that were out of memory once: they have been asked to free some.
    pub(super) trimmed: SmallVec<[DeviceId; 2]>,
    /// Devices that were out of memory again, with their messages.
    pub(super) full: Vec<(DeviceId, String)>,
}

impl Executable {
    /// A failure of a segment, whose first node is `first`.
    pub(super) fn failed(
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

    /// Decides what follows from a failure: `Ok` to try again.
    pub(super) fn answer(
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
        // Memory of this plan alone is freed before more is asked for.
        *prepared = None;
        // Each answer rules out something new, so this ends.
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

    /// The next device of the failed operation, by the new plan.
    fn next_device(&self, failed: Option<&Memo>, memory: &RunMemory) -> Option<DeviceType> {
        let plan = self.plan(&memory.full).ok()?;
        let is_it = |node: &Node| {
            failed.is_some_and(|failed| plan.graph.with_signature(node, memo) == *failed)
        };
        // A fused operation is not a node of the plan. The last node stands for it.
        let at = plan.graph.nodes().iter().position(is_it);
        let assignment = at.map(|at| &plan.assignments[at]);
        let assignment = assignment.or(plan.assignments.last())?;
        Some(self.devices.info(assignment.device).device)
    }
}
