//! The operations that values are still to be computed by.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use rustorch_ir::order::sort_by_key;
use rustorch_ir::{FoldingHasher, Layout, Role};
use rustorch_runtime::{Moment, Storage};
use smallvec::SmallVec;

use crate::error::RusTorchResult;
use crate::value::{Extent, Pending, State, Value};

/// Operations one behind the other of which a history may be made: longer ones are computed, for
/// planning takes time and memory for each operation.
pub(crate) const MAX_DEPTH: u32 = 1000;

/// Bytes of memory that a history may keep which nobody else holds.
const MAX_BYTES: u64 = 256 << 20;

/// A map by the keys of values.
pub(crate) type ByKey<T> = HashMap<usize, T, BuildHasherDefault<FoldingHasher>>;

impl Extent {
    /// The extent of an operation on these values.
    pub(crate) fn of<'a>(inputs: impl Iterator<Item = &'a Value> + Clone) -> Self {
        let mut extent = Self::default();
        for input in inputs.clone() {
            let before = input.extent();
            extent.depth = extent.depth.max(before.depth);
            extent.bytes = extent.bytes.saturating_add(before.bytes);
            extent.is_traced |= before.is_traced;
        }
        extent.depth += 1;
        if extent.bytes > MAX_BYTES && !extent.is_traced {
            extent.bytes = History::of(inputs).bytes();
        }
        extent
    }

    /// Is it so long that it is better computed now?
    pub(crate) fn is_too_long(self) -> bool {
        !self.is_traced && (self.depth > MAX_DEPTH || self.bytes > MAX_BYTES)
    }
}

/// The values that others are computed from.
#[derive(Default)]
pub(crate) struct History {
    /// Those that are known, or given.
    pub(crate) leaves: Vec<(Value, State)>,
    /// The operations in the order they were recorded, each with the results that there are
    /// handles on.
    pub(crate) nodes: Vec<(SmallVec<[Value; 1]>, Arc<Pending>)>,
    /// The values that are written over.
    pub(crate) overwritten: ByKey<()>,
    /// How often each value is an operand.
    uses: ByKey<usize>,
}

/// The values of a history that somebody else holds a handle on.
#[derive(Default)]
pub(crate) struct Held {
    /// Those that are computed.
    pub(crate) values: Vec<Value>,
    /// Looks at those, or at leaves, in an order that can be followed.
    pub(crate) views: Vec<(Value, Arc<Pending>)>,
}

impl History {
    /// Walks back from `outputs`. Histories can be long: in a loop, not by recursion.
    pub(crate) fn of<'a>(outputs: impl Iterator<Item = &'a Value>) -> Self {
        let mut history = Self::default();
        let mut next = Vec::new();
        for output in outputs {
            let depth = output.pending().map_or(0, |pending| pending.extent.depth);
            history.uses.reserve(depth as usize + 1);
            history.nodes.reserve(depth as usize);
            history.visit(output.clone(), 0, &mut next);
            while let Some(value) = next.pop() {
                history.visit(value, 1, &mut next);
            }
        }
        // What reads a state is then ahead of what writes over it.
        let nodes = &mut history.nodes;
        sort_by_key(nodes, |(_, pending)| pending.recorded);
        history
    }

    /// Comes to a value, as an operand or not, and goes on to its operands the first time.
    fn visit(&mut self, value: Value, uses: usize, next: &mut Vec<Value>) {
        match self.uses.entry(value.key()) {
            Entry::Occupied(mut known) => *known.get_mut() += uses,
            Entry::Vacant(new) => {
                new.insert(uses);
                match value.state() {
                    State::Pending(pending) => {
                        let results = pending.results(value);
                        // Those of the same operation are visited with it.
                        for other in results.iter().filter(|_| results.len() > 1) {
                            self.uses.entry(other.key()).or_insert(0);
                        }
                        if pending.is_update() {
                            self.overwritten.insert(pending.inputs[0].key(), ());
                        }
                        next.extend(pending.inputs.iter().rev().cloned());
                        self.nodes.push((results, pending));
                    }
                    leaf => self.leaves.push((value, leaf)),
                }
            }
        }
    }

    /// How often a value is an operand.
    pub(crate) fn uses(&self, value: &Value) -> usize {
        self.uses.get(&value.key()).copied().unwrap_or(0)
    }

    /// Is there a handle on a value besides those in the history?
    fn is_held(&self, value: &Value) -> bool {
        value.others(1 + self.uses(value)) > 0
    }

    /// Fails if an operand in memory was written over since an operation was recorded.
    pub(crate) fn check_operands(&self) -> RusTorchResult<()> {
        let was_overwritten = |(_, state): &(Value, State)| match state {
            State::Ready(view) => !view.is_of(Moment::default()),
            State::Pending(_) | State::Scalar(_) | State::Placeholder | State::Failed(_) => false,
        };
        if !self.leaves.iter().any(was_overwritten) {
            return Ok(());
        }
        let mut nodes = self.nodes.iter();
        nodes.try_for_each(|(_, pending)| pending.check_operands())
    }

    /// Bytes of memory that nobody else holds.
    fn bytes(&self) -> u64 {
        let mut own: HashMap<usize, (usize, &Storage)> = HashMap::new();
        for (value, state) in &self.leaves {
            if let State::Ready(view) = state
                && !self.is_held(value)
            {
                let (handles, _) = own.entry(view.storage.id()).or_insert((0, &view.storage));
                // The value's, and that of its state here.
                *handles += 2;
            }
        }
        let own = own.into_values();
        let only = own.filter(|(handles, storage)| storage.handles() <= *handles);
        only.map(|(_, storage)| storage.bytes() as u64).sum()
    }

    /// The values that somebody else holds a handle on and may ask for, besides updated states;
    /// without constants, which cost nothing to repeat.
    pub(crate) fn held(&self) -> Held {
        let mut held = Held::default();
        let mut looked_at: ByKey<()> = ByKey::default();
        let results = self.nodes.iter().rev().flat_map(|(results, pending)| {
            let results = results.iter();
            results.map(move |value| (value, pending))
        });
        for (value, pending) in results {
            let is_constant = pending.inputs.is_empty();
            let is_wanted = looked_at.contains_key(&value.key()) || self.is_held(value);
            if is_constant || !is_wanted {
                continue;
            }
            match pending.op.def().role() {
                Role::Compute if pending.is_update() => {}
                Role::View if is_look(pending) => {
                    looked_at.insert(pending.inputs[0].key(), ());
                    held.views.push((value.clone(), pending.clone()));
                }
                Role::View | Role::Compute => held.values.push(value.clone()),
            }
        }
        held.views.reverse();
        held
    }
}

/// Can strides express a view of its operand? Else it is a copy.
fn is_look(view: &Pending) -> bool {
    let is_view = |pending: &Arc<Pending>| pending.op.def().role() == Role::View;
    let mut base = view.inputs[0].clone();
    let mut between = Vec::new();
    while let Some(pending) = base.pending().filter(is_view) {
        let next = pending.inputs[0].clone();
        between.push((base, pending));
        base = next;
    }
    let in_memory = base.view().map(|view| view.layout.clone());
    let mut layout = in_memory.unwrap_or_else(|| Layout::contiguous(&base.ty().shape));
    for (value, pending) in between.iter().rev() {
        let seen = pending.op.def().view(&layout);
        layout = seen.unwrap_or_else(|| Layout::contiguous(&value.ty().shape));
    }
    view.op.def().view(&layout).is_some()
}
