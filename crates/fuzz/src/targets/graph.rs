//! Nodes, one after the other. Nodes that break a rule of graphs are refused. Accepted ones keep the rules, and
//! so does the graph after the passes of planning.

use rustorch_ir::ops::{
    Activation, ActivationKind, AddRmsNorm, Assign, BinaryOp, RmsNorm, TopK, UnaryOp, UpdateSlice,
};
use rustorch_ir::ops::{Binary, Full, Reshape, Slice, Unary};
use rustorch_ir::passes::{Fusion, OneDevice, Rewritten, planned};
use rustorch_ir::{DType, Graph, Op, Role, TensorType, ValueId, check};

/// An operation, and how many operands it is given.
fn op(choice: u8) -> (Op, usize) {
    let norm = RmsNorm { eps: 1e-5.into() };
    let kind = ActivationKind::Silu;
    match choice % 12 {
        0 => (Unary { op: UnaryOp::Neg }.into(), 1),
        1 => (Binary { op: BinaryOp::Add }.into(), 2),
        2 => (Activation { kind }.into(), 1),
        3 => (Assign.into(), 2),
        4 => (UpdateSlice { dim: 0 }.into(), 3),
        5 => (norm.into(), 1),
        6 => (AddRmsNorm { norm }.into(), 2),
        7 => (
            TopK {
                k: 2,
                dim: 0,
                largest: true,
            }
            .into(),
            1,
        ),
        8 => (Reshape { shape: [8].into() }.into(), 1),
        9 => (
            Slice {
                dim: 0,
                start: 0,
                end: 2,
                step: 1,
            }
            .into(),
            1,
        ),
        10 => (
            Full {
                shape: [8].into(),
                value: 1.into(),
                dtype: DType::F32,
            }
            .into(),
            0,
        ),
        // More operands, or fewer, than it has.
        _ => (
            Binary { op: BinaryOp::Mul }.into(),
            usize::from(choice / 12) % 4,
        ),
    }
}

/// The value that a chain of views shows.
fn base(graph: &Graph, mut value: ValueId) -> ValueId {
    while let Some(node) = graph
        .node(value)
        .filter(|node| node.op.def().role() == Role::View)
    {
        value = node.inputs[0];
    }
    value
}

/// Checks a graph by the rules, which are written here a second time.
fn keep_the_rules(graph: &Graph) {
    let inputs = graph.inputs().len();
    // Values that may be written over: inputs, and results that were written over one.
    let mut states: Vec<usize> = (0..inputs).collect();
    let mut overwritten = Vec::new();
    let mut next = inputs;
    for node in graph.nodes() {
        for value in &node.inputs {
            assert!(value.index() < next, "a later operand");
            assert!(
                !overwritten.contains(&base(graph, *value)),
                "an old state is read"
            );
        }
        for (result, operand) in node.overwrites() {
            let state = node.inputs[operand];
            assert!(states.contains(&state.index()), "no state is written over");
            assert_eq!(&node.outputs[result], graph.ty(state));
            let reads = node
                .inputs
                .iter()
                .filter(|value| base(graph, **value) == state);
            assert_eq!(reads.count(), 1);
            overwritten.push(state);
            states.push(next + result);
        }
        next += node.outputs.len();
    }
    if check::outputs(graph).is_ok() {
        for value in graph.outputs() {
            assert!(value.index() < next && !overwritten.contains(&base(graph, *value)));
        }
    }
}

/// Chains, overwritten states, views, and fused operations, each with an output.
pub(super) fn lists() -> Vec<Vec<u8>> {
    let chain = vec![1, 4, 3, 2, 1, 0, 1, 252, 1];
    let assigned = vec![3, 4, 3, 252, 1];
    let updated = vec![4, 4, 2, 1, 0, 1, 252, 1];
    let views = vec![8, 4, 9, 1, 252, 1];
    let fused = vec![1, 4, 3, 5, 1, 252, 1, 252, 2];
    vec![chain, assigned, updated, views, fused]
}

pub(super) fn nodes(bytes: &[u8]) -> Result<(), String> {
    let mut graph = Graph::new();
    for (shape, dtype) in [
        ([8], DType::F32),
        ([8], DType::F32),
        ([2], DType::F32),
        ([1], DType::I32),
    ] {
        graph
            .input(TensorType::new(shape, dtype))
            .expect("an input");
    }
    let mut bytes = bytes.iter().copied();
    let mut refused = Ok(());
    while let Some(choice) = bytes.next() {
        let (op, count) = op(choice);
        // Small numbers count from the last value back, large ones are not values at all.
        let value = |byte: u8| ValueId((graph.len() as u32).wrapping_sub(u32::from(byte % 32)));
        let operands: Vec<ValueId> = bytes.by_ref().take(count).map(value).collect();
        let before = graph.len();
        match choice {
            250.. => graph.output(operands.first().copied().unwrap_or(ValueId(u32::MAX))),
            _ => {
                if let Err(error) = graph.push(op, &operands) {
                    assert_eq!(graph.len(), before);
                    refused = Err(error.to_string());
                }
            }
        }
    }
    keep_the_rules(&graph);
    check::outputs(&graph).map_err(|error| error.to_string())?;
    let fusion = Fusion::default();
    let mut places = OneDevice(|_| true);
    let rewritten = Rewritten::from(graph).through(&planned(&fusion), &mut places, None);
    keep_the_rules(&rewritten.expect("passes fit any graph").graph);
    refused
}
