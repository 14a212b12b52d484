//! Late updates: writes over states that must not run twice come last.
//!
//! A failed run is repeated from its inputs. The result is the same if the inputs are unchanged. An
//! update may be repeated if its new values come from other inputs. It may not if the graph reads
//! the old state first, as with a counter. The latter come last. So everything that can fail does
//! so before, and a failure after the first of them loses the states.

use super::{Pass, Places, Rewriting, Rewritten};
use crate::order::sort_by_key;
use crate::{Graph, Node, OpError};

/// Moves updates that must not run twice, with all that follows from them, to the end.
pub struct LateUpdates;

impl Pass for LateUpdates {
    fn name(&self) -> &'static str {
        "late updates"
    }

    fn run(&self, graph: &Graph, _places: &dyn Places) -> Result<Option<Rewritten>, OpError> {
        let mut late = unrepeatable(graph);
        if !late.contains(&true) {
            return Ok(None);
        }
        for (at, node) in graph.nodes().iter().enumerate() {
            let mut makers = node.inputs.iter().filter_map(|&v| graph.producer(v));
            late[at] = late[at] || makers.any(|maker| late[maker]);
        }
        let mut order: Vec<usize> = (0..late.len()).collect();
        sort_by_key(&mut order, |&at| late[at]);
        let mut out = Rewriting::new(graph)?;
        order.into_iter().try_for_each(|at| out.keep(at))?;
        out.finish().map(Some)
    }
}

/// For each node, does it write over a state that other nodes, or the node itself, read before?
pub fn unrepeatable(graph: &Graph) -> Vec<bool> {
    let nodes = graph.nodes();
    if !nodes.iter().any(Node::has_effects) {
        return vec![false; nodes.len()];
    }
    let mut readers = vec![0_u32; graph.len()];
    for value in nodes.iter().flat_map(|node| &node.inputs) {
        readers[value.index()] += 1;
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
