//! Work of the nodes of a graph.

use rustorch_ir::{DType, Graph, Node, OpKind, OpType, Role};

use super::Costs;

/// Products of fewer rows than this read each weight about once.
pub(crate) const FEW_ROWS: f64 = 2.0;

/// The work of a node.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Work {
    pub(crate) kind: OpKind,
    /// The operation with its parameters, see [`OpCost::example`](super::OpCost).
    pub(crate) example: String,
    pub(crate) op_type: Option<OpType>,
    /// Element type of the operands; of a product's weights.
    pub(crate) dtype: DType,
    /// Bytes read and written.
    pub(crate) bytes: f64,
    /// Multiply-accumulates.
    pub(crate) macs: f64,
    /// Does each operand's element take part in about one product?
    pub(crate) reads_once: bool,
}

impl Work {
    /// A node on its own.
    pub(crate) fn of(graph: &Graph, node: &Node) -> Self {
        let def = node.op.def();
        let operands = node.inputs.iter().map(|&v| graph.ty(v));
        let elements: usize = operands.map(|ty| ty.shape.elements()).sum();
        let macs = graph.with_signature(node, |s| def.macs(s)) as f64;
        let has_state =
            node.has_effects() || node.inputs.iter().any(|&v| graph.previous(v).is_some());
        // The part of a state in use is known only at run time. Half of it is assumed.
        let used = match macs > 0.0 && has_state {
            true => 0.5,
            false => 1.0,
        };
        // A product's weights are its largest operand behind the first.
        let typed = match macs > 0.0 {
            true => node.inputs[1..]
                .iter()
                .max_by_key(|&&v| graph.ty(v).bytes()),
            false => node.inputs.first(),
        };
        Self {
            kind: node.op.kind(),
            example: format!("{:?}", node.op),
            op_type: def.op_type(),
            dtype: typed.map_or(node.output().dtype, |&v| graph.ty(v).dtype),
            bytes: used * traffic(graph, node) as f64,
            macs: used * macs,
            reads_once: macs < FEW_ROWS * elements as f64,
        }
    }
}

/// Bytes that a node reads and writes, about.
pub(crate) fn traffic(graph: &Graph, node: &Node) -> usize {
    let def = node.op.def();
    if def.role() == Role::View {
        return 0;
    }
    let moves = def.op_type().is_none();
    graph.with_signature(node, |s| {
        let written = def.written(s);
        let read = (0..s.inputs.len()).map(|i| match def.read(s, i) {
            // A node that moves data into a state does not read the state.
            _ if moves && node.overwrites().any(|(_, operand)| operand == i) => 0,
            // A node that only moves data reads no more of a table than it writes.
            table if moves => table.min(written),
            operand => operand,
        });
        read.fold(written, usize::saturating_add)
    })
}

/// The work of a graph's nodes, beside each other.
pub(crate) struct Workload<'a> {
    graph: &'a Graph,
    /// Values that chains of elementwise operations hand on, and that never reach memory.
    handed_on: Vec<bool>,
}

impl<'a> Workload<'a> {
    pub(crate) fn new(graph: &'a Graph) -> Self {
        let mut readers: Vec<Option<usize>> = vec![None; graph.len()];
        let mut handed_on = vec![false; graph.len()];
        for (at, node) in graph.nodes().iter().enumerate() {
            for v in &node.inputs {
                // The first reader may be the only one.
                let first = readers[v.index()].replace(at);
                handed_on[v.index()] = first.is_none_or(|first| first == at);
            }
        }
        let elementwise = |node: &Node| node.op.def().op_type() == Some(OpType::Activation);
        for node in graph.nodes() {
            let value = node.result(0);
            let reader = readers[value.index()].map(|at| &graph.nodes()[at]);
            handed_on[value.index()] &= elementwise(node)
                && reader
                    .is_some_and(|r| elementwise(r) && r.output().shape == node.output().shape);
        }
        handed_on[..graph.inputs().len()].fill(false);
        for output in graph.outputs() {
            handed_on[output.index()] = false;
        }
        Self { graph, handed_on }
    }

    /// Seconds that the node with this index takes.
    pub(crate) fn seconds(&self, costs: &Costs, index: usize) -> f64 {
        let graph = self.graph;
        let node = &graph.nodes()[index];
        if node.op.def().role() == Role::View {
            return 0.0;
        }
        let work = Work::of(graph, node);
        let result = node.result(0);
        let all = node.inputs.iter().copied().chain([result]);
        let saved = all.filter(|v| self.handed_on[v.index()]);
        let saved: usize = saved.map(|v| graph.ty(v).bytes()).sum();
        let left = |work: &Work| Work {
            bytes: (work.bytes - saved as f64).max(0.0),
            ..work.clone()
        };
        if !self.handed_on[result.index()] {
            return costs.launch.as_secs_f64() + costs.seconds(&left(&work));
        }
        // The node's reads from memory, and its time beyond that of the simplest operation.
        let simplest = Work {
            kind: OpKind::Binary,
            ..work.clone()
        };
        let more = costs.seconds(&work) - costs.seconds(&simplest);
        costs.seconds(&left(&simplest)) + more.max(0.0)
    }

    /// Seconds of all nodes.
    pub(crate) fn total(&self, costs: &Costs) -> f64 {
        let all = 0..self.graph.nodes().len();
        all.map(|index| self.seconds(costs, index)).sum()
    }
}
