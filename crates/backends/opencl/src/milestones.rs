//! Milestones of queued work: events that show progress.

use std::collections::VecDeque;

use crate::api::Object;

/// Events of launches in their order. They separate a device that works long from one that hangs.
#[derive(Default)]
pub(crate) struct Milestones {
    pub(crate) ahead: VecDeque<Object>,
    /// Number of passed milestones.
    pub(crate) passed: u64,
}
