//! The rules of a well-formed graph: [`Graph::push`] keeps those of nodes, and who runs a graph
//! asks for those of [`outputs`].
//!
//! - Operands are values that the graph has already; so there are no cycles.
//! - Types are what [`OpDef::infer`](crate::OpDef::infer) says.
//! - An operation writes over states only: graph inputs, and what was written over one. The
//!   result has the operand's type, and an operand is written over once.
//! - Nothing reads what was written over, by itself or through a view.

use crate::{Graph, Node, Op, OpError, ValueId};

/// The operands of a new node are in the graph and were not written over.
pub(crate) fn operands(graph: &Graph, op: &Op, inputs: &[ValueId]) -> Result<(), OpError> {
    for &value in inputs {
        if value.index() >= graph.len() {
            let expected = format!("operands among the graph's {} values", graph.len());
            return Err(at(graph, op, expected, value));
        }
        if graph.is_overwritten(value) {
            let expected = "operands that no node before has written over";
            return Err(at(graph, op, expected, value));
        }
    }
    Ok(())
}

/// What a new node writes over may be.
pub(crate) fn effects(graph: &Graph, node: &Node) -> Result<(), OpError> {
    for (result, operand) in node.overwrites() {
        let Some(&value) = node.inputs.get(operand) else {
            let expected = format!("an operand {operand} to write over");
            return Err(OpError::new(node.op.name(), expected, node.inputs.len()));
        };
        if graph.state_root(value).is_none() {
            let expected = "to write over a state: a graph input, or what was written over one";
            return Err(at(graph, &node.op, expected, value));
        }
        if node
            .inputs
            .iter()
            .filter(|&&v| graph.base(v) == value)
            .count()
            > 1
        {
            let expected = "to write over an operand that it reads once";
            return Err(at(graph, &node.op, expected, value));
        }
        if node.outputs[result] != *graph.ty(value) {
            let expected = format!("a result of the state's type {}", graph.ty(value));
            return Err(at(graph, &node.op, expected, value));
        }
    }
    Ok(())
}

/// The graph's outputs are values that it has and that were not written over.
///
/// # Errors
/// The first output that is not.
pub fn outputs(graph: &Graph) -> Result<(), OpError> {
    for &value in graph.outputs() {
        let expected = if value.index() >= graph.len() {
            format!("outputs among the graph's {} values", graph.len())
        } else if graph.is_overwritten(value) {
            "outputs that no node has written over".to_owned()
        } else {
            continue;
        };
        return Err(OpError::new("output", expected, name(value)));
    }
    Ok(())
}

/// What the node that would come next breaks.
fn at(graph: &Graph, op: &Op, expected: impl ToString, value: ValueId) -> OpError {
    let got = format!("{} at node {}", name(value), graph.nodes().len());
    OpError::new(op.name(), expected, got)
}

fn name(value: ValueId) -> String {
    format!("%{}", value.0)
}
