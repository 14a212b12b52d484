//! Runs of nodes of one device, as their own graphs.

use std::ops::Range;

use rustorch_ir::{Graph, Node, OpError, ValueId};
use smallvec::SmallVec;

use crate::DeviceError;
use crate::devices::placement::{Assignment, DeviceId};

/// Neighbouring nodes of one device, as a graph of their own.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) device: DeviceId,
    /// The nodes. Its node `i` is node `first + i` of the plan's graph.
    pub(crate) graph: Graph,
    /// Index of its first node in the plan's graph.
    pub(crate) first: usize,
    /// The values of the plan's graph that are its inputs.
    pub(crate) inputs: SmallVec<[ValueId; 4]>,
    /// For each input, is it updated as state?
    pub(crate) writes: SmallVec<[bool; 4]>,
    /// The values of the plan's graph that are its outputs.
    pub(crate) outputs: SmallVec<[ValueId; 4]>,
}

impl Segment {
    /// Indices of its nodes in the plan's graph.
    pub(crate) fn nodes(&self) -> Range<usize> {
        self.first..self.first + self.graph.nodes().len()
    }

    /// The failure to find room for an output, by the node that computes it.
    pub(crate) fn without_room(&self, output: usize, error: DeviceError) -> DeviceError {
        let value = self.graph.outputs()[output];
        match (self.graph.producer(value), self.graph.node(value)) {
            (Some(at), Some(node)) => error.at(at, node.op.name()),
            _ => error,
        }
    }

    /// Tensors that it writes with the elements of another one in another type: by casts, and
    /// by updates of a state of another type.
    pub(crate) fn conversions(&self) -> usize {
        let in_states = |node: &Node| {
            let source = |result| {
                self.graph
                    .ty(node.inputs[node.op.def().source(result)])
                    .dtype
            };
            let results = node.overwrites().map(|(result, _)| result);
            let converts = |&result: &usize| source(result) != node.outputs[result].dtype;
            results.filter(converts).count()
        };
        let in_all = |node: &Node| match node.op.def().converts() {
            true => 1,
            false => in_states(node),
        };
        self.graph.nodes().iter().map(in_all).sum()
    }
}

/// Cuts the nodes into runs of one device. A result that a later run or the caller needs is its output.
pub(crate) fn cut(graph: &Graph, assignments: &[Assignment]) -> Result<Vec<Segment>, OpError> {
    if let [first, rest @ ..] = assignments
        && rest.iter().all(|other| other.device == first.device)
        && let Some(whole) = whole(graph, first.device)
    {
        return Ok(vec![whole]);
    }
    let mut last_use = vec![0; graph.len()];
    for (i, node) in graph.nodes().iter().enumerate() {
        for v in &node.inputs {
            last_use[v.index()] = i;
        }
    }
    for v in graph.outputs() {
        last_use[v.index()] = usize::MAX;
    }
    let mut local = vec![None; graph.len()];
    let mut segments = Vec::new();
    let mut first = 0;
    for run in assignments.chunk_by(|a, b| a.device == b.device) {
        let nodes = first..first + run.len();
        segments.push(segment(graph, nodes, run[0].device, &last_use, &mut local)?);
        first += run.len();
    }
    Ok(segments)
}

/// The whole graph, if [`segment`] would make the same of it: inputs are read in their order, outputs
/// computed in theirs, and nothing is written over.
fn whole(graph: &Graph, device: DeviceId) -> Option<Segment> {
    let inputs = graph.inputs().len();
    let mut read = 0;
    for node in graph.nodes() {
        let mut values = node.inputs.iter().map(|v| v.index());
        let in_order = values.all(|v| {
            let is_next = v == read && read < inputs;
            read += usize::from(is_next);
            v < read || v >= inputs
        });
        if !in_order || node.has_effects() {
            return None;
        }
    }
    let outputs = graph.outputs();
    let are_computed = outputs.iter().all(|v| v.index() >= inputs);
    let are_in_order = outputs.is_sorted_by(|a, b| a < b);
    (read == inputs && are_computed && are_in_order).then(|| Segment {
        device,
        graph: graph.clone(),
        first: 0,
        inputs: (0..inputs as u32).map(ValueId).collect(),
        writes: SmallVec::from_elem(false, inputs),
        outputs: SmallVec::from_slice(outputs),
    })
}

/// The nodes as a graph of their own. `last_use`: for each value, the last node that reads it.
/// `local`: room for the value of the segment that each value is, with the segment's first node.
fn segment(
    graph: &Graph,
    nodes: Range<usize>,
    device: DeviceId,
    last_use: &[usize],
    local: &mut [Option<(usize, ValueId)>],
) -> Result<Segment, OpError> {
    let mut out = Segment {
        device,
        graph: Graph::new(),
        first: nodes.start,
        inputs: SmallVec::new(),
        writes: SmallVec::new(),
        outputs: SmallVec::new(),
    };
    out.graph.reserve(nodes.len());
    let here = nodes.start;
    let computed_here = |v: ValueId| graph.producer(v).is_some_and(|at| nodes.contains(&at));
    for node in &graph.nodes()[nodes.clone()] {
        for &v in &node.inputs {
            let is_known = local[v.index()].is_some_and(|(segment, _)| segment == here);
            if !computed_here(v) && !is_known {
                local[v.index()] = Some((here, out.graph.input(graph.ty(v).clone())?));
                out.inputs.push(v);
                out.writes.push(false);
            }
        }
    }
    for node in &graph.nodes()[nodes.clone()] {
        let known = node.inputs.iter().filter_map(|v| local[v.index()]);
        let operands: SmallVec<[ValueId; 4]> = known.map(|(_, value)| value).collect();
        let first = out.graph.push_node(node, &operands)?;
        for (value, own) in node.results().zip(out.graph.results(first)) {
            local[value.index()] = Some((here, own));
        }
        for (_, state) in node.overwrites() {
            // The state lives in its input's storage, which later segments read.
            if let Some(root) = out.graph.state_root(operands[state]) {
                out.writes[root.index()] = true;
            }
        }
    }
    for value in graph.nodes()[nodes.clone()].iter().flat_map(Node::results) {
        let needed_later = last_use[value.index()] >= nodes.end;
        let stays_in_state = || graph.state_root(value).is_some();
        if needed_later
            && !stays_in_state()
            && let Some((_, own)) = local[value.index()]
        {
            out.graph.output(own);
            out.outputs.push(value);
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use rustorch_ir::OpKind;

    use super::*;
    use crate::devices::placement::Reason;

    /// All of a graph, as a device that has a kernel for each of its operations runs it.
    fn conversions(graph: &Graph) -> usize {
        let here = Assignment {
            device: DeviceId(0),
            reason: Reason::Preferred,
            replaces: Default::default(),
        };
        let all = vec![here; graph.nodes().len()];
        cut(graph, &all)
            .unwrap()
            .iter()
            .map(Segment::conversions)
            .sum()
    }

    #[test]
    fn states_that_a_fused_operation_converts_count_as_without_it() {
        let mut converting = 0;
        for case in OpKind::CachedAttention.cases() {
            let mut fused = Graph::new();
            let mut parts = Graph::new();
            let mut inputs = Vec::new();
            for operand in &case.inputs {
                inputs.push(fused.input(operand.ty.clone()).unwrap());
                parts.input(operand.ty.clone()).unwrap();
            }
            let first = fused.push(case.op.clone(), &inputs).unwrap();
            for result in fused.results(first) {
                fused.output(result);
            }
            for result in parts.expand(&case.op, &inputs).unwrap() {
                parts.output(result);
            }
            assert_eq!(conversions(&fused), conversions(&parts));
            converting += conversions(&fused);
        }
        assert!(converting > 0);
    }
}
