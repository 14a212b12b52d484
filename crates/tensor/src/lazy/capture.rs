//! Builds the graph that computes some tensors.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use rustorch_ir::ops::Full;
use rustorch_ir::order::sort_by_key;
use rustorch_ir::{DType, FoldingHasher, Op, Scalar, TensorType, ValueId};
use rustorch_runtime::{Call, DeviceType, Moment, Outline, Runtime, Storage};
use smallvec::SmallVec;

use crate::Tensor;
use crate::error::{RusTorchResult, require};
use crate::lazy::history::{ByKey, Held, History};
use crate::lazy::leaves::{input_type, made_of};
use crate::lazy::recording::is_recording;
use crate::lazy::value::{Pending, State, Value, View};

/// The graph of some tensors.
pub(crate) struct Capture<'a> {
    /// Its inputs are the placeholders, then the [leaves](Leaves); its outputs are `results`.
    pub(crate) outline: Outline<'a>,
    /// The overwritten inputs, with the times of recording.
    pub(crate) written: Vec<(usize, Moment)>,
    /// The asked-for values, and other kept values behind them. These are states after an update,
    /// which cost nothing to keep, and values with live handles.
    pub(crate) results: Vec<Value>,
    /// Values in the memory of others: overwritten states, and views of kept values.
    pub(crate) shown: Vec<(Value, Arc<Pending>)>,
}

/// The inputs of a history.
#[derive(Default)]
pub(crate) struct Leaves {
    /// Types of the graph's inputs.
    inputs: SmallVec<[TensorType; 2]>,
    /// The storages of tensors in memory, which are the last inputs.
    pub(crate) storages: SmallVec<[Storage; 4]>,
    /// The first nodes: views of inputs, and numbers that are part of the graph.
    made: Vec<Made>,
    values: Values,
}

/// An operation on the value before, or on none.
struct Made {
    op: Op,
    operand: Option<ValueId>,
    pin: Option<DeviceType>,
}

/// The value of each tensor, by its key.
type Values = ByKey<ValueId>;

/// The input that a storage is, read as a dtype.
type Inputs = HashMap<(usize, DType), ValueId, BuildHasherDefault<FoldingHasher>>;

impl<'a> Capture<'a> {
    /// The graph that computes `outputs` again and again from placeholders and tensors in memory.
    ///
    /// # Errors
    /// Fails for an operand that was overwritten.
    pub(crate) fn trace(
        history: &'a History,
        leaves: &'a Leaves,
        outputs: &[&Value],
    ) -> RusTorchResult<Self> {
        Self::new(history, leaves, outputs, None)
    }

    /// The graph that computes `outputs` once, and other values of their history, which are `held`.
    ///
    /// # Errors
    /// The same errors as [`Capture::trace`].
    pub(crate) fn once(
        history: &'a History,
        leaves: &'a Leaves,
        outputs: &[&Value],
        held: Held,
    ) -> RusTorchResult<Self> {
        Self::new(history, leaves, outputs, Some(held))
    }

    fn new(
        history: &'a History,
        leaves: &'a Leaves,
        outputs: &[&Value],
        held: Option<Held>,
    ) -> RusTorchResult<Self> {
        history.check_operands()?;
        let mut outline = leaves.outline();
        let operands = history
            .nodes
            .iter()
            .map(|(_, pending)| pending.inputs.len());
        outline.reserve(history.nodes.len(), operands.sum());
        let mut computed =
            Values::with_capacity_and_hasher(history.nodes.len(), Default::default());
        // The inputs that updated states are.
        let mut states: HashMap<ValueId, usize> = HashMap::new();
        let (mut kept, mut shown) = (Vec::new(), Vec::new());
        let overwritten = &history.overwritten;
        let mut written = Vec::new();
        for (results, pending) in &history.nodes {
            let known = |value: &Value| leaves.value(&computed, value);
            let operands: SmallVec<[ValueId; 4]> = pending.inputs.iter().map(known).collect();
            let is_update = pending.is_update();
            let state = match operands.first() {
                Some(first) if is_update && first.index() < outline.inputs() => Some(first.index()),
                Some(first) if is_update => states.get(first).copied(),
                _ => None,
            };
            let first = outline.push(&pending.op, operands, pending.count(), pending.pin);
            if let Some(input) = state {
                states.insert(first, input);
                written.push((input, pending.recorded));
            }
            let value = |value: &Value| ValueId(first.0 + value.result() as u32);
            computed.extend(results.iter().map(|result| (result.key(), value(result))));
            for value in results.iter().filter(|_| is_update) {
                match overwritten.contains_key(&value.key()) {
                    true => shown.push((value.clone(), pending.clone())),
                    false => kept.push(value.clone()),
                }
            }
        }
        let is_once = held.is_some();
        let held = held.unwrap_or_default();
        let looks: ByKey<()> = held
            .views
            .iter()
            .map(|(view, _)| (view.key(), ()))
            .collect();
        // One that was overwritten is in the memory of the last update, and a look in that of another value.
        let is_shown = |key: usize| overwritten.contains_key(&key) || looks.contains_key(&key);
        let is_result = |v: &&&Value| !is_once || !is_shown(v.key());
        let mut results: Vec<Value> = outputs.iter().filter(is_result).copied().cloned().collect();
        kept.retain(|value| !is_once || !results.iter().any(|r| r.key() == value.key()));
        results.extend(kept.into_iter().chain(held.values));
        for value in &results {
            outline.output(leaves.value(&computed, value));
        }
        shown.extend(held.views);
        Ok(Self {
            outline,
            written,
            results,
            shown,
        })
    }
}

/// The way to a value that cannot be read while it is recorded.
fn in_place_of_reading() -> &'static str {
    match is_recording() {
        true => {
            "a step is recorded here: read the loss that TrainStep::step gives, \
             and choose by where_ in place of a branch"
        }
        false => "make it an output of the trace, and read what Trace::run gives",
    }
}

impl Leaves {
    /// The inputs of a history whose first inputs are `placeholders`. Numbers are part of the graph.
    ///
    /// # Errors
    /// Fails for a placeholder that is not among `placeholders`.
    pub(crate) fn of_trace(history: &History, placeholders: &[&Tensor]) -> RusTorchResult<Self> {
        let mut leaves = Self::default();
        for tensor in placeholders {
            let is_placeholder = matches!(tensor.state(), State::Placeholder);
            require("trace", is_placeholder, "placeholders", "a tensor")?;
            let input = leaves.input(tensor.ty().clone());
            leaves.values.insert(tensor.value().key(), input);
        }
        leaves.add(history, None)?;
        Ok(leaves)
    }

    /// The inputs of a history without placeholders. Numbers are storages of `runtime`.
    ///
    /// # Errors
    /// Fails for a placeholder.
    pub(crate) fn of(history: &History, runtime: &Runtime) -> RusTorchResult<Self> {
        let mut leaves = Self::default();
        leaves.add(history, Some(runtime))?;
        Ok(leaves)
    }

    /// Makes each storage one input, and each value in it a view of that input; values that are apart have their own
    /// where they run once. Numbers become storages of a runtime, or constants.
    fn add(&mut self, history: &History, numbers: Option<&Runtime>) -> RusTorchResult<()> {
        let mut views: SmallVec<[(&Value, Arc<View>); 4]> = SmallVec::new();
        let mut constants: SmallVec<[(&Value, Scalar); 4]> = SmallVec::new();
        for (value, state) in &history.leaves {
            match (state, numbers) {
                (State::Ready(view), _) => views.push((value, view.clone())),
                (State::Scalar(number), Some(runtime)) => {
                    let storage = runtime.number(*number, value.ty().dtype)?;
                    views.push((value, View::whole(storage, &value.ty().shape).into()));
                }
                (State::Scalar(number), None) => constants.push((value, *number)),
                (State::Failed(error), _) => return Err((**error).clone()),
                (State::Placeholder | State::Pending(_), _) => require(
                    "eval",
                    self.values.contains_key(&value.key()),
                    format_args!(
                        "values: a placeholder has one only in the trace that it was passed to ({})",
                        in_place_of_reading()
                    ),
                    format_args!("a placeholder {}", value.ty()),
                )?,
            }
        }
        // States, and then values that are their whole storage, give their input its shape: what is
        // written over has to be an input, and most need no view at all.
        let is_state = |value: &Value| history.overwritten.contains_key(&value.key());
        sort_by_key(&mut views, |(value, view)| {
            (!is_state(value), !view.is_whole(value.ty().dtype))
        });
        // A trace is planned once, whatever its operands are.
        let parts = numbers.is_some();
        let mut inputs = Inputs::default();
        let mut states = self.inputs.len()..self.inputs.len();
        let mut found: SmallVec<[ValueId; 4]> = SmallVec::with_capacity(views.len());
        for (value, view) in &views {
            let key = (view.storage.id(), value.ty().dtype);
            let known = inputs.get(&key).copied();
            let is_apart = parts && view.is_apart;
            let shared = known.filter(|input| !is_apart || states.contains(&input.index()));
            let input = shared.unwrap_or_else(|| self.leaf(value.ty(), view));
            if !is_apart && known.is_none() {
                inputs.insert(key, input);
            }
            if is_state(value) {
                states.end = self.inputs.len();
            }
            found.push(input);
        }
        for ((value, view), input) in views.iter().zip(found) {
            let layout = (!view.is_whole(value.ty().dtype)).then_some(&view.layout);
            let mut seen = input;
            for op in made_of(&self.inputs[input.index()], value.ty(), layout) {
                seen = self.make(op, Some(seen), None);
            }
            self.values.insert(value.key(), seen);
        }
        for (value, number) in constants {
            let ty = value.ty();
            let constant = Full {
                shape: ty.shape.clone(),
                value: number,
                dtype: ty.dtype,
            };
            let constant = self.make(constant.into(), None, value.pin());
            self.values.insert(value.key(), constant);
        }
        Ok(())
    }

    /// Adds the input of a type's elements in memory.
    fn leaf(&mut self, ty: &TensorType, view: &View) -> ValueId {
        self.storages.push(view.storage.clone());
        self.input(input_type(
            ty,
            view.is_whole(ty.dtype),
            view.storage.bytes(),
        ))
    }

    /// Adds an input. All inputs come before computed values.
    fn input(&mut self, ty: TensorType) -> ValueId {
        self.inputs.push(ty);
        ValueId(self.inputs.len() as u32 - 1)
    }

    fn make(&mut self, op: Op, operand: Option<ValueId>, pin: Option<DeviceType>) -> ValueId {
        let value = ValueId((self.inputs.len() + self.made.len()) as u32);
        self.made.push(Made { op, operand, pin });
        value
    }

    /// The call that recorded a node of the graph of a history that begins with these.
    pub(crate) fn recorded(&self, history: &History, node: usize) -> Option<Call> {
        Some(self.pending(history, node)?.call)
    }

    /// The operation on values that such a node is.
    pub(crate) fn pending<'h>(&self, history: &'h History, node: usize) -> Option<&'h Pending> {
        let (_, pending) = history.nodes.get(node.checked_sub(self.made.len())?)?;
        Some(pending)
    }

    /// The graph so far.
    fn outline(&self) -> Outline<'_> {
        let mut outline = Outline::new(&self.inputs);
        for Made { op, operand, pin } in &self.made {
            outline.push(op, *operand, 1, *pin);
        }
        outline
    }

    /// A value that is a leaf, or was computed.
    fn value(&self, computed: &Values, value: &Value) -> ValueId {
        let key = value.key();
        let known = computed.get(&key).or_else(|| self.values.get(&key));
        // None has no such number: making the graph says so.
        known.copied().unwrap_or(ValueId(u32::MAX))
    }
}
