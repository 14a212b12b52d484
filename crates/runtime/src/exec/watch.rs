//! The first update of a run that must not run twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustorch_ir::Op;

use crate::platform::Instant;
use crate::{DeviceError, LaunchTime, Nodes, Probe, Watcher};

/// A probe that notes when the first update is launched that must not run twice.
pub(crate) struct Watch<'a> {
    probe: &'a dyn Probe,
    /// The node of that update.
    update: usize,
    is_past: AtomicBool,
}

impl<'a> Watch<'a> {
    pub(crate) fn new(probe: &'a dyn Probe, update: usize) -> Self {
        Self {
            probe,
            update,
            is_past: AtomicBool::new(false),
        }
    }

    /// Has it been launched?
    pub(crate) fn is_past(&self) -> bool {
        self.is_past.load(Ordering::Relaxed)
    }
}

impl Probe for Watch<'_> {
    fn before(&self, node: usize, op: &Op) -> Result<(), DeviceError> {
        self.probe.before(node, op)?;
        if node >= self.update {
            self.is_past.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    fn timed_since(&self) -> Option<Instant> {
        self.probe.timed_since()
    }

    fn took(&self, launches: &Arc<[Nodes]>, first: usize, times: &[LaunchTime]) {
        self.probe.took(launches, first, times);
    }

    fn update(&self) -> Option<usize> {
        Some(self.update)
    }

    fn watcher(&self) -> Option<Watcher> {
        self.probe.watcher()
    }
}
