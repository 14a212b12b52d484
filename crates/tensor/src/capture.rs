//! From tensors to the graph that computes them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use rustorch_ir::ops::Full;
use rustorch_ir::{DType, FoldingHasher, Graph, Scalar, ValueId};
use rustorch_runtime::{Moment, Runtime, Storage};
use smallvec::SmallVec;

use crate::Tensor;
use crate::error::{RusTorchResult, require};
use crate::history::{ByKey, Held, History};
use crate::leaves::{input_type, put_in};
use crate::recovery::{Recipes, of_history};
use crate::value::{Pending, State, Value, View};

/// The graph of some tensors.
pub(crate) struct Capture {
    /// Its inputs are the placeholders, then `leaves`; its outputs are `results`.
    pub(crate) graph: Graph,
    /// The storages of tensors in memory.
    pub(crate) leaves: Vec<Storage>,
    /// Which inputs are written over, and when that was recorded.
    pub(crate) written: Vec<(usize, Moment)>,
    /// The asked-for values, and behind them what else is kept: states after an update, which cost
    /// nothing to keep, and values that there are handles on.
    pub(crate) results: Vec<Value>,
    /// What is in the memory of others: overwritten states, and views of what is kept. In an
    /// order that can be followed.
    pub(crate) shown: Vec<(Value, Arc<Pending>)>,
    /// How all that is computed again, where the runtime keeps that.
    pub(crate) recipes: Recipes,
}

/// The value of each tensor, by its key.
type Values = ByKey<ValueId>;

/// The input that a storage is, read as a dtype.
type Inputs = HashMap<(usize, DType), ValueId, BuildHasherDefault<FoldingHasher>>;

impl Capture {
    /// The graph that computes `outputs` again and again from `placeholders` and tensors in
    /// memory. Numbers are part of it.
    ///
    /// # Errors
    /// A placeholder that is not among `placeholders`; an old state that was read behind its
    /// update.
    pub(crate) fn trace(placeholders: &[&Tensor], outputs: &[&Tensor]) -> RusTorchResult<Self> {
        let outputs: Vec<&Value> = outputs.iter().map(|t| t.value()).collect();
        let history = History::of(outputs.iter().copied());
        let mut graph = Graph::new();
        let mut values = Values::with_capacity_and_hasher(history.len(), Default::default());
        for tensor in placeholders {
            let is_placeholder = matches!(tensor.state(), State::Placeholder);
            require("trace", is_placeholder, "placeholders", "a tensor")?;
            values.insert(tensor.value().key(), graph.input(tensor.ty().clone())?);
        }
        let leaves = add_leaves(&mut graph, &history, &mut values, None)?;
        Self::new(graph, leaves, values, &history, &outputs, None)
    }

    /// The graph that computes `outputs` once, and what else of their history somebody has a
    /// handle on. Numbers are inputs.
    ///
    /// # Errors
    /// A placeholder; an old state that was read behind its update.
    pub(crate) fn once(outputs: &[&Value], runtime: &Runtime) -> RusTorchResult<Self> {
        let history = History::of(outputs.iter().copied());
        let mut held = history.held();
        let is_asked = |value: &Value| outputs.iter().any(|asked| asked.key() == value.key());
        held.values.retain(|value| !is_asked(value));
        let mut graph = Graph::new();
        let mut values = Values::with_capacity_and_hasher(history.len(), Default::default());
        let leaves = add_leaves(&mut graph, &history, &mut values, Some(runtime))?;
        let mut capture = Self::new(graph, leaves, values, &history, outputs, Some(held))?;
        if runtime.keeps_recipes() {
            capture.recipes = of_history(&history, runtime);
        }
        Ok(capture)
    }

    fn new(
        mut graph: Graph,
        leaves: Vec<Storage>,
        mut values: Values,
        history: &History,
        outputs: &[&Value],
        held: Option<Held>,
    ) -> RusTorchResult<Self> {
        history.check_operands()?;
        let (mut kept, mut shown) = (Vec::new(), Vec::new());
        let overwritten = &history.overwritten;
        let mut written = Vec::new();
        graph.reserve(history.nodes.len());
        for (results, pending) in &history.nodes {
            let inputs: SmallVec<[ValueId; 4]> =
                pending.inputs.iter().map(|v| values[&v.key()]).collect();
            let first = graph.push(pending.op.clone(), &inputs)?;
            graph.pin(first, pending.pin);
            if pending.is_update()
                && let Some(state) = graph.state_root(first)
            {
                written.push((state.index(), pending.recorded));
            }
            let all = graph.results(first);
            values.extend(
                results
                    .iter()
                    .map(|value| (value.key(), all[value.result()])),
            );
            for value in results.iter().filter(|_| pending.is_update()) {
                match overwritten.contains_key(&value.key()) {
                    true => shown.push((value.clone(), pending.clone())),
                    false => kept.push(value.clone()),
                }
            }
        }
        // One that was overwritten is in the memory of the last update.
        let is_once = held.is_some();
        let is_result = |v: &&&Value| !is_once || !overwritten.contains_key(&v.key());
        let mut results: Vec<Value> = outputs.iter().filter(is_result).copied().cloned().collect();
        let held = held.unwrap_or_default();
        kept.retain(|value| !is_once || !results.iter().any(|r| r.key() == value.key()));
        results.extend(kept.into_iter().chain(held.values));
        for value in &results {
            graph.output(values[&value.key()]);
        }
        shown.extend(held.views);
        Ok(Self {
            graph,
            leaves,
            written,
            results,
            shown,
            recipes: Recipes::default(),
        })
    }
}

/// Makes each storage one input, and each value in it a view of that input. Numbers become
/// storages of a runtime, or constants.
fn add_leaves(
    graph: &mut Graph,
    history: &History,
    values: &mut Values,
    numbers: Option<&Runtime>,
) -> RusTorchResult<Vec<Storage>> {
    let mut views: SmallVec<[(&Value, View); 4]> = SmallVec::new();
    let mut constants: SmallVec<[(&Value, Scalar); 4]> = SmallVec::new();
    for (value, state) in &history.leaves {
        match (state, numbers) {
            (State::Ready(view), _) => views.push((value, view.clone())),
            (State::Scalar(number), Some(runtime)) => {
                let storage = runtime.number(*number, value.ty().dtype)?;
                views.push((value, View::whole(storage, &value.ty().shape)));
            }
            (State::Scalar(number), None) => constants.push((value, *number)),
            (State::Placeholder | State::Pending(_), _) => require(
                "eval",
                values.contains_key(&value.key()),
                "values: a placeholder has one only in the trace that it was passed to",
                format_args!("a placeholder {}", value.ty()),
            )?,
        }
    }
    // States, and then values that are their whole storage, give their input its shape: what is
    // written over has to be an input, and most need no view at all.
    views.sort_by_key(|(value, view)| {
        let is_state = history.overwritten.contains_key(&value.key());
        (!is_state, !view.is_whole(value.ty().dtype))
    });
    let mut inputs: Inputs = Inputs::default();
    let mut storages = Vec::new();
    for (value, view) in &views {
        let dtype = value.ty().dtype;
        if let Entry::Vacant(entry) = inputs.entry((view.storage.id(), dtype)) {
            let ty = input_type(value.ty(), view.is_whole(dtype), view.storage.bytes());
            entry.insert(graph.input(ty)?);
            storages.push(view.storage.clone());
        }
    }
    for (value, view) in &views {
        let input = inputs[&(view.storage.id(), value.ty().dtype)];
        let layout = (!view.is_whole(value.ty().dtype)).then_some(&view.layout);
        values.insert(value.key(), put_in(graph, input, value.ty(), layout)?);
    }
    for (value, number) in constants {
        let ty = value.ty();
        let constant = Full {
            shape: ty.shape.clone(),
            value: number,
            dtype: ty.dtype,
        };
        let constant = graph.push(constant, &[])?;
        graph.pin(constant, value.pin());
        values.insert(value.key(), constant);
    }
    Ok(storages)
}
