//! How long the launches of a plan take.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use rustorch_ir::Op;
use smallvec::SmallVec;

use crate::journal::lock;
use crate::{DeviceError, Probe};

/// The nodes that a launch computes, by their indices in the plan's graph: several if elementwise
/// ones are fused.
pub(crate) type Launched = SmallVec<[usize; 2]>;

/// Times of a plan's launches over its runs.
#[derive(Default)]
pub(crate) struct Profile {
    times: BTreeMap<Launched, Duration>,
    runs: u32,
}

impl Profile {
    /// What times a segment, whose first node has the index `first` in the plan's graph.
    pub(crate) fn timer(&mut self, first: usize) -> Timer<'_> {
        Timer {
            times: Mutex::new(&mut self.times),
            first,
        }
    }

    /// A run of all segments is over.
    pub(crate) fn count_run(&mut self) {
        self.runs += 1;
    }

    /// The launches that were timed, with the mean time of each.
    pub(crate) fn launches(&self) -> impl Iterator<Item = (&Launched, Duration)> {
        let runs = self.runs.max(1);
        self.times
            .iter()
            .map(move |(nodes, time)| (nodes, *time / runs))
    }
}

/// Notes the times of a segment's launches.
pub(crate) struct Timer<'a> {
    times: Mutex<&'a mut BTreeMap<Launched, Duration>>,
    first: usize,
}

impl Probe for Timer<'_> {
    fn before(&self, _: usize, _: &Op) -> Result<(), DeviceError> {
        Ok(())
    }

    fn is_timed(&self) -> bool {
        true
    }

    fn took(&self, nodes: &[usize], time: Duration) {
        let nodes = nodes.iter().map(|node| self.first + node).collect();
        *lock(&self.times).entry(nodes).or_default() += time;
    }
}
