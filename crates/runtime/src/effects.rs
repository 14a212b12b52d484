//! Updates of states that must not run twice.
//!
//! A failed run is repeated from its inputs. The result is the same if the inputs are unchanged. An
//! update may be repeated if its new values come from other inputs. It may not if the graph reads
//! the old state first, as with a counter. The latter come last. So everything that can fail does
//! so before, and a failure after the first of them loses the states.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use rustorch_ir::order::sort_by_key;
use rustorch_ir::{Graph, Node, Op, OpError};

use crate::placement::Assignment;
use crate::{DeviceError, LaunchTime, Nodes, Probe, Watcher};

/// For each node, does it write over a state that other nodes, or the node itself, read before?
fn unrepeatable(graph: &Graph) -> Vec<bool> {
    let nodes = graph.nodes();
    let mut readers = vec![0_u32; graph.len()];
    if nodes.iter().any(|node| node.has_effects()) {
        for value in nodes.iter().flat_map(|node| &node.inputs) {
            readers[value.index()] += 1;
        }
    }
    let is_read_before = |node: &Node| {
        let mut states = node.overwrites();
        states.any(|(result, state)| {
            let is_read = readers[node.inputs[state].index()] > 1;
            is_read || node.op.def().reads_state(result)
        })
    };
    nodes.iter().map(is_read_before).collect()
}

/// A graph whose updates that must not run twice come last.
pub(crate) struct Ordered {
    pub(crate) graph: Graph,
    /// Assignment of each node.
    pub(crate) assignments: Vec<Assignment>,
    /// For each node, is it such an update?
    pub(crate) unrepeatable: Vec<bool>,
}

/// Moves updates that must not run twice, with all that follows from them, to the end.
pub(crate) fn last(graph: Graph, assignments: Vec<Assignment>) -> Result<Ordered, OpError> {
    let unrepeatable = unrepeatable(&graph);
    if !unrepeatable.contains(&true) {
        return Ok(Ordered {
            graph,
            assignments,
            unrepeatable,
        });
    }
    let mut late = unrepeatable.clone();
    for (at, node) in graph.nodes().iter().enumerate() {
        let mut makers = node
            .inputs
            .iter()
            .filter_map(|&value| graph.producer(value));
        late[at] = late[at] || makers.any(|maker| late[maker]);
    }
    let mut order: Vec<usize> = (0..late.len()).collect();
    sort_by_key(&mut order, |&at| late[at]);
    Ok(Ordered {
        graph: graph.reordered(&order)?,
        assignments: order.iter().map(|&at| assignments[at].clone()).collect(),
        unrepeatable: order.iter().map(|&at| unrepeatable[at]).collect(),
    })
}

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

    /// Returns whether it has been launched.
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
