//! What is passed on the way of what was queued.

use std::collections::VecDeque;

use crate::api::Object;

/// Events of launches in their order, by which a device that works long is told from one that
/// hangs.
#[derive(Default)]
pub(crate) struct Milestones {
    pub(crate) ahead: VecDeque<Object>,
    /// How many were passed.
    pub(crate) passed: u64,
}
