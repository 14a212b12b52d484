//! From tensors to the graph that computes them.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use rustorch_ir::ops::{AsStrided, Reshape};
use rustorch_ir::{DType, Graph, OpError, TensorType, ValueId};
use rustorch_runtime::Storage;
use smallvec::SmallVec;

use crate::Tensor;
use crate::error::{RusTorchResult, require};
use crate::tensor::{Pending, State, View};

/// The graph of some tensors.
pub(crate) struct Capture {
    /// Its inputs are the placeholders, then `leaves`; its outputs the asked-for tensors,
    /// then `states`.
    pub(crate) graph: Graph,
    /// The storages of tensors in memory.
    pub(crate) leaves: Vec<Storage>,
    /// The tensors that are states after an update. They cost nothing to keep.
    pub(crate) states: Vec<Tensor>,
}

/// The tensors that others are computed from, in an order that can be followed.
#[derive(Default)]
struct History {
    leaves: Vec<(Tensor, State)>,
    nodes: Vec<(Tensor, Arc<Pending>)>,
}

impl History {
    /// Walks back from `outputs`. Histories can be long: in a loop, not by recursion.
    fn of(outputs: &[&Tensor]) -> Self {
        enum Visit {
            Enter(Tensor),
            Leave(Tensor, Arc<Pending>),
        }
        let mut history = Self::default();
        let mut seen = HashSet::new();
        let mut stack: Vec<Visit> = (outputs.iter().rev())
            .map(|&t| Visit::Enter(t.clone()))
            .collect();
        while let Some(visit) = stack.pop() {
            match visit {
                Visit::Leave(tensor, pending) => history.nodes.push((tensor, pending)),
                Visit::Enter(tensor) if seen.insert(tensor.key()) => match tensor.state() {
                    State::Pending(pending) => {
                        stack.push(Visit::Leave(tensor, pending.clone()));
                        stack.extend(pending.inputs.iter().rev().cloned().map(Visit::Enter));
                    }
                    leaf => history.leaves.push((tensor, leaf)),
                },
                Visit::Enter(_) => {}
            }
        }
        history
    }
}

/// The value of each tensor, by its key.
type Values = HashMap<usize, ValueId>;

impl Capture {
    /// The graph that computes `outputs` from `placeholders` and tensors in memory.
    ///
    /// # Errors
    /// A placeholder that is not among `placeholders`; a state that is read while it is
    /// updated.
    pub(crate) fn new(placeholders: &[&Tensor], outputs: &[&Tensor]) -> RusTorchResult<Self> {
        let history = History::of(outputs);
        let mut graph = Graph::new();
        let mut values = Values::new();
        for tensor in placeholders {
            let is_placeholder = matches!(tensor.state(), State::Placeholder);
            require("trace", is_placeholder, "placeholders", "a tensor")?;
            values.insert(tensor.key(), graph.input(tensor.ty().clone())?);
        }
        let leaves = add_leaves(&mut graph, &history.leaves, &mut values)?;
        let mut states = Vec::new();
        for (tensor, pending) in &history.nodes {
            let inputs: SmallVec<[ValueId; 4]> =
                pending.inputs.iter().map(|t| values[&t.key()]).collect();
            let value = graph.push(pending.op.clone(), &inputs)?;
            graph.pin(value, pending.pin);
            values.insert(tensor.key(), value);
            if pending.is_update() {
                states.push(tensor.clone());
            }
        }
        for tensor in outputs.iter().copied().chain(&states) {
            graph.output(values[&tensor.key()]);
        }
        check_states(&graph)?;
        Ok(Self {
            graph,
            leaves,
            states,
        })
    }
}

/// Makes each storage one input, and each tensor in it a view of that input.
fn add_leaves(
    graph: &mut Graph,
    leaves: &[(Tensor, State)],
    values: &mut Values,
) -> RusTorchResult<Vec<Storage>> {
    let mut inputs: HashMap<(usize, DType), ValueId> = HashMap::new();
    let mut storages = Vec::new();
    let mut views: Vec<(&Tensor, &View)> = Vec::new();
    for (tensor, state) in leaves {
        match state {
            State::Ready(view) => views.push((tensor, view)),
            State::Placeholder | State::Pending(_) => require(
                "eval",
                values.contains_key(&tensor.key()),
                "values: a placeholder has one only in the trace that it was passed to",
                format!("a placeholder {}", tensor.ty()),
            )?,
        }
    }
    // Tensors that are their whole storage give their input its shape, so that most need no
    // view at all.
    views.sort_by_key(|(tensor, view)| !view.is_whole(tensor.dtype()));
    for (tensor, view) in &views {
        if let Entry::Vacant(entry) = inputs.entry((view.storage.id(), tensor.dtype())) {
            entry.insert(graph.input(input_type(tensor, view))?);
            storages.push(view.storage.clone());
        }
    }
    for (tensor, view) in &views {
        let input = inputs[&(view.storage.id(), tensor.dtype())];
        values.insert(tensor.key(), add_view(graph, input, tensor, view)?);
    }
    Ok(storages)
}

fn input_type(tensor: &Tensor, view: &View) -> TensorType {
    match tensor.dtype().size() {
        Some(size) if !view.is_whole(tensor.dtype()) => {
            TensorType::new([view.storage.bytes() / size], tensor.dtype())
        }
        _ => tensor.ty().clone(),
    }
}

fn add_view(
    graph: &mut Graph,
    input: ValueId,
    tensor: &Tensor,
    view: &View,
) -> Result<ValueId, OpError> {
    if view.is_whole(tensor.dtype()) {
        return match graph.ty(input).shape == tensor.ty().shape {
            true => Ok(input),
            false => graph.reshape(input, tensor.ty().shape.clone()),
        };
    }
    let elements = graph.ty(input).shape.elements();
    let flat = match graph.ty(input).rank() {
        1 => input,
        _ => graph.push(
            Reshape {
                shape: [elements].into(),
            },
            &[input],
        )?,
    };
    let layout = view.layout.clone();
    graph.push(AsStrided { layout }, &[flat])
}

/// An update changes its state in place, so whoever else reads the old state might read
/// the new one instead.
fn check_states(graph: &Graph) -> RusTorchResult<()> {
    let mut readers = vec![0u32; graph.len()];
    for value in graph.nodes().iter().flat_map(|n| &n.inputs) {
        readers[value.index()] += 1;
    }
    for (node, state) in graph.nodes().iter().flat_map(|node| {
        let states = node.overwrites();
        states.map(move |(_, state)| (node, node.inputs[state]))
    }) {
        require(
            node.op.name(),
            readers[state.index()] == 1,
            "a state that is read only through the result of its update",
            "another reader of the old state in the same computation",
        )?;
    }
    Ok(())
}
