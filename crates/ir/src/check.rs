//! The rules of a well-formed graph: [`Graph::push`] keeps those of nodes, and the runner of a
//! graph checks those of [`outputs`].
//!
//! - Operands are values that the graph has already; so there are no cycles.
//! - Types are the results of [`OpDef::infer`](crate::OpDef::infer).
//! - An operation writes over states only: graph inputs, and values written over one.
//! - Nothing reads a value that was written over, by itself or through a view.

use smallvec::SmallVec;

use crate::order::sort_by_key;
use crate::{Graph, Node, Op, OpError, ValueId};

/// The operands of a new node are in the graph and were not written over.
pub(crate) fn operands(graph: &Graph, op: &Op, inputs: &[ValueId]) -> Result<(), OpError> {
    for &value in inputs {
        if value.index() >= graph.len() {
            let expected = format_args!("operands among the graph's {} values", graph.len());
            return Err(at(graph, op, expected, value));
        }
        if graph.is_overwritten(value) {
            let expected =
                "operands that no node before has written over (read its result instead)";
            return Err(at(graph, op, expected, value));
        }
    }
    Ok(())
}

/// Checks the values that a new node writes over.
pub(crate) fn effects(graph: &Graph, node: &Node) -> Result<(), OpError> {
    let mut memories: SmallVec<[ValueId; 8]> = SmallVec::new();
    if node.has_effects() {
        memories.extend(node.inputs.iter().map(|&value| graph.base(value)));
        sort_by_key(&mut memories, |&memory| memory);
    }
    for (result, operand) in node.overwrites() {
        let Some(&value) = node.inputs.get(operand) else {
            let expected = format_args!("an operand {operand} to write over");
            return Err(OpError::new(node.op.name(), expected, node.inputs.len()));
        };
        if graph.state_root(value).is_none() {
            let expected = "to write over a state: a graph input, or what was written over one";
            return Err(at(graph, &node.op, expected, value));
        }
        let first = memories.partition_point(|&memory| memory < value);
        if memories.get(first + 1) == Some(&value) {
            let expected = "to write over an operand that it reads once";
            return Err(at(graph, &node.op, expected, value));
        }
        if node.outputs[result] != *graph.ty(value) {
            let expected = format_args!("a result of the state's type {}", graph.ty(value));
            return Err(at(graph, &node.op, expected, value));
        }
    }
    Ok(())
}

/// The graph's outputs are values that it has and that were not written over.
///
/// # Errors
/// Fails for the first invalid output.
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

/// The error of a rule that the next node breaks.
fn at(graph: &Graph, op: &Op, expected: impl ToString, value: ValueId) -> OpError {
    let got = format_args!("{} at node {}", name(value), graph.nodes().len());
    OpError::new(op.name(), expected, got)
}

fn name(value: ValueId) -> String {
    format!("%{}", value.0)
}

#[cfg(test)]
mod tests {
    use super::outputs;
    use crate::ops::{UnaryOp, UpdateSlice};
    use crate::{DType, Graph, OpError, TensorType, ValueId};

    const UPDATE: UpdateSlice = UpdateSlice { dim: 0 };

    /// A graph with a state `[6]`, a source `[2]` and a start.
    fn graph() -> (Graph, [ValueId; 3]) {
        let mut g = Graph::new();
        let types = [([6], DType::F32), ([2], DType::F32), ([1], DType::I32)];
        let inputs = types.map(|(shape, dtype)| g.input(TensorType::new(shape, dtype)).unwrap());
        (g, inputs)
    }

    fn refused<T: std::fmt::Debug>(result: Result<T, OpError>, expected: &str) {
        let error = result.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn operands_are_in_the_graph() {
        let (mut g, [x, ..]) = graph();
        let unknown = ValueId(3);
        refused(
            g.unary(UnaryOp::Exp, unknown),
            "expected operands among the graph's 3 values, got %3 at node 0",
        );
        let y = g.unary(UnaryOp::Exp, x).unwrap();
        // Its own result would make a cycle.
        refused(g.add(y, ValueId(y.0 + 1)), "got %4 at node 1");
        g.output(ValueId(9));
        refused(outputs(&g), "outputs among the graph's 4 values, got %9");
    }

    #[test]
    fn what_was_written_over_is_not_read() {
        let (mut g, [state, source, start]) = graph();
        let before = g.unary(UnaryOp::Neg, state).unwrap();
        let view = g.slice(state, 0, 0, 3).unwrap();
        let new = g.push(UPDATE, &[state, source, start]).unwrap();
        let expected = "no node before has written over";
        refused(g.unary(UnaryOp::Exp, state), expected);
        refused(g.unary(UnaryOp::Exp, view), expected);
        // A value has one writer at most.
        refused(g.push(UPDATE, &[state, source, start]), expected);
        // Values computed from it before, and its new value, may be read.
        g.unary(UnaryOp::Exp, before).unwrap();
        let newer = g.push(UPDATE, &[new, source, start]).unwrap();
        assert_eq!(g.state_root(newer), Some(state));
        g.output(newer);
        outputs(&g).unwrap();
        g.output(view);
        refused(outputs(&g), "outputs that no node has written over, got %4");
    }

    #[test]
    fn only_states_are_written_over() {
        let (mut g, [state, source, start]) = graph();
        let constant = g.full([6].into(), 0, DType::F32).unwrap();
        let computed = g.unary(UnaryOp::Neg, state).unwrap();
        let view = g.slice(state, 0, 0, 4).unwrap();
        for other in [constant, computed, view] {
            refused(
                g.push(UPDATE, &[other, source, start]),
                "expected to write over a state",
            );
        }
        let part = g.slice(state, 0, 0, 2).unwrap();
        refused(
            g.push(UPDATE, &[state, part, start]),
            "to write over an operand that it reads once",
        );
    }
}
