//! The operations that pending values still need.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::BuildHasherDefault;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustorch_ir::order::sort_by_key;
use rustorch_ir::{FoldingHasher, Layout};
use rustorch_runtime::{Moment, Storage};
use smallvec::{SmallVec, smallvec};

use crate::error::RusTorchResult;
use crate::lazy::eager::is_eager;
use crate::lazy::value::{Extent, Pending, State, Value, live};

/// Longest chain of operations in a history. Longer ones are computed, since planning takes time
/// and memory for each operation.
pub(crate) const MAX_DEPTH: u32 = 1000;

/// Bytes of otherwise unused memory that a history may keep.
const MAX_BYTES: u64 = 256 << 20;

/// A map by the keys of values.
pub(crate) type ByKey<T> = HashMap<usize, T, BuildHasherDefault<FoldingHasher>>;

/// Unit of the count, in bytes: each leaf's are a whole number of these.
const UNIT: u64 = 64;

/// Counter of the bytes of leaves that operations read; each leaf counts once in a while. An operation's history
/// keeps no more than was counted since it began.
static READ: AtomicU64 = AtomicU64::new(1);

impl Extent {
    /// The extent of an operation on these values.
    pub(crate) fn of<'a>(inputs: impl Iterator<Item = &'a Value> + Clone) -> Self {
        let mut extent = Self {
            began: u64::MAX,
            ..Self::default()
        };
        for input in inputs.clone() {
            let before = input.extent();
            let is_leaf = before.depth == 0;
            let began = if is_leaf {
                counted(input, before)
            } else {
                before.began
            };
            extent.began = extent.began.min(began);
            extent.depth = extent.depth.max(before.depth);
            extent.is_traced |= before.is_traced;
        }
        extent.depth += 1;
        let now = READ.load(Ordering::Relaxed);
        extent.began = extent.began.min(now);
        extent.bytes = (now - extent.began).saturating_mul(UNIT);
        if extent.bytes > MAX_BYTES && !extent.is_traced {
            extent.bytes = History::of(inputs.clone()).bytes();
            extent.began = now.saturating_sub(extent.bytes.div_ceil(UNIT)).max(1);
            // Memory that somebody else holds does not count for a while.
            let leaves = inputs.filter(|input| input.extent().depth == 0);
            leaves.for_each(|leaf| leaf.count_from(now));
        }
        extent
    }

    /// Returns whether it is so long that it is better computed now. Every history is, where each operation is computed
    /// as it is called.
    pub(crate) fn is_too_long(self) -> bool {
        !self.is_traced && (self.depth > MAX_DEPTH || self.bytes > MAX_BYTES || is_eager())
    }
}

/// The count from before it had a leaf's bytes, which are counted now if that was long ago.
fn counted(leaf: &Value, before: Extent) -> u64 {
    let since = READ.load(Ordering::Relaxed).saturating_sub(before.began);
    if before.began != 0 && since.saturating_mul(UNIT) <= MAX_BYTES / 2 {
        return before.began;
    }
    let bytes = match &*leaf.lock() {
        State::Ready(view) => view.storage.bytes() as u64,
        State::Pending(_) | State::Scalar(_) | State::Placeholder | State::Failed(_) => 0,
    };
    let began = READ.fetch_add(bytes.div_ceil(UNIT), Ordering::Relaxed);
    leaf.count_from(began);
    began
}

/// The values that others are computed from.
#[derive(Default)]
pub(crate) struct History {
    /// Leaves: computed values and placeholders.
    pub(crate) leaves: Vec<(Value, State)>,
    /// The operations in the order they were recorded, each with the results that there are
    /// handles on.
    pub(crate) nodes: Vec<(SmallVec<[Value; 1]>, Arc<Pending>)>,
    /// The values that are written over.
    pub(crate) overwritten: ByKey<()>,
    /// Number of times that each value is an operand.
    uses: ByKey<usize>,
    /// Values that are not asked for, and read memory that is written over.
    pub(crate) readers: Vec<Value>,
    /// All readers of memory that is written over.
    old: ByKey<()>,
}

/// The values of a history with other handles.
#[derive(Default)]
pub(crate) struct Held {
    /// Pending operations.
    pub(crate) values: Vec<Value>,
    /// Looks at those, or at leaves, in an order that can be followed.
    pub(crate) views: Vec<(Value, Arc<Pending>)>,
}

impl History {
    /// Walks back from `outputs`. Histories can be long: in a loop, not by recursion.
    pub(crate) fn of<'a>(outputs: impl Iterator<Item = &'a Value>) -> Self {
        let mut history = Self::default();
        for output in outputs {
            let depth = output.pending().map_or(0, |pending| pending.extent.depth);
            history.uses.reserve(depth as usize + 1);
            history.nodes.reserve(depth as usize);
            history.walk(output.clone());
        }
        history.sort();
        history
    }

    /// History of values that are computed now, and the other values that are kept. It has the readers of what it
    /// writes over.
    pub(crate) fn computing(asked: &[&Value]) -> (Self, Held) {
        let history = Self::of(asked.iter().copied()).with_readers();
        let held = history.held(asked);
        let kept = asked.iter().copied().chain(&held.values);
        (history.with_copies(kept), held)
    }

    /// Walks back from one more value.
    fn walk(&mut self, output: Value) {
        let mut next = Vec::new();
        self.visit(output, 0, &mut next);
        while let Some(value) = next.pop() {
            self.visit(value, 1, &mut next);
        }
    }

    /// Sorts the operations as they were recorded: reads of a state are ahead of writes over it.
    fn sort(&mut self) {
        sort_by_key(&mut self.nodes, |(_, pending)| pending.recorded);
    }

    /// The same history, with other readers of memory that is written over. They read it as it is before the write. It
    /// may write over other memory itself.
    fn with_readers(mut self) -> Self {
        let mut known = 0;
        while self.overwritten.len() > known {
            known = self.overwritten.len();
            for reader in readers(&self.last_writes()) {
                self.old.insert(reader.key(), ());
                if !self.uses.contains_key(&reader.key()) {
                    self.readers.push(reader.clone());
                    self.walk(reader);
                }
            }
        }
        if !self.readers.is_empty() {
            self.sort();
        }
        self
    }

    /// The same history, in which kept values have memory of their own. A view that strides cannot express has none
    /// before: it may be in memory that is written over.
    fn with_copies<'a>(mut self, kept: impl Iterator<Item = &'a Value>) -> Self {
        if self.overwritten.is_empty() {
            return self;
        }
        let kept: ByKey<()> = kept.map(|value| (value.key(), ())).collect();
        let is_copied = |(results, pending): &(SmallVec<[Value; 1]>, Arc<Pending>)| {
            kept.contains_key(&results[0].key()) && pending.is_copying_view()
        };
        if !self.nodes.iter().any(is_copied) {
            return self;
        }
        for node in mem::take(&mut self.nodes) {
            if !is_copied(&node) {
                self.nodes.push(node);
                continue;
            }
            let (results, pending) = node;
            let (view, copy) = pending.as_copy_of_view(results[0].ty());
            self.uses.insert(view.key(), 1);
            self.nodes.push((smallvec![view], pending));
            self.nodes.push((results, copy));
        }
        self
    }

    /// Moment of the last write over each memory, by its id.
    fn last_writes(&self) -> ByKey<Moment> {
        let mut last: ByKey<Moment> = ByKey::default();
        for (_, pending) in &self.nodes {
            if let Some(written) = pending.written.as_ref().filter(|_| pending.is_update())
                && let Some(memory) = written.memory.upgrade()
            {
                let moment = last.entry(memory.id()).or_default();
                *moment = written.moment.max(*moment);
            }
        }
        last
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

    /// Number of times that a value is an operand.
    pub(crate) fn uses(&self, value: &Value) -> usize {
        self.uses.get(&value.key()).copied().unwrap_or(0)
    }

    /// Returns whether there is a handle on a value besides those in the history.
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

    /// Bytes of memory that are otherwise unused.
    fn bytes(&self) -> u64 {
        let mut own: HashMap<usize, (usize, &Storage)> = HashMap::new();
        for (value, state) in &self.leaves {
            if let State::Ready(view) = state
                && !self.is_held(value)
            {
                let (handles, _) = own.entry(view.storage.id()).or_insert((0, &view.storage));
                *handles += 1;
            }
        }
        let own = own.into_values();
        let only = own.filter(|(handles, storage)| storage.handles() <= *handles);
        only.map(|(_, storage)| storage.bytes() as u64).sum()
    }

    /// The values with other handles that may be asked for, besides updated states. A value that is `asked` for is
    /// among the views if it is to show another value's memory. The other one is then among the values, also if it
    /// is constant.
    fn held(&self, asked: &[&Value]) -> Held {
        let asked: ByKey<()> = asked.iter().map(|asked| (asked.key(), ())).collect();
        let mut held = Held::default();
        // Is what looks at them asked for?
        let mut looked_at: ByKey<bool> = ByKey::default();
        let needed = self.needed_by_gradients();
        let results = self.nodes.iter().rev().flat_map(|(results, pending)| {
            let results = results.iter();
            results.map(move |value| (value, pending))
        });
        for (value, pending) in results {
            let look = looked_at.get(&value.key()).copied();
            let is_asked = asked.contains_key(&value.key());
            let is_needed = || needed.contains_key(&value.key()) || self.is_held(value);
            if !is_asked && look.is_none() && !is_needed() {
                continue;
            }
            if pending.is_look() {
                if is_asked && look.is_none() && self.is_alone(pending, &asked) {
                    continue;
                }
                let is_asked = is_asked || look == Some(true);
                *looked_at.entry(pending.inputs[0].key()).or_default() |= is_asked;
                held.views.push((value.clone(), pending.clone()));
                continue;
            }
            let is_constant = pending.inputs.is_empty() && look != Some(true);
            if !is_asked && !is_constant && !pending.is_update() {
                held.values.push(value.clone());
            }
        }
        held.views.reverse();
        held
    }

    /// The operands that gradients may read, and that could not be computed again: they read memory that is
    /// written over.
    fn needed_by_gradients(&self) -> ByKey<()> {
        let mut needed = ByKey::default();
        for (results, pending) in self.nodes.iter().filter(|_| !self.old.is_empty()) {
            // The results' and the one here; another one is a track's.
            if Arc::strong_count(pending) > results.len() + 1 {
                let old = pending.inputs.iter().map(Value::key);
                needed.extend(
                    old.filter(|key| self.old.contains_key(key))
                        .map(|key| (key, ())),
                );
            }
        }
        needed
    }

    /// May a look have its own memory instead? Then no other handle shows its elements or could
    /// write them. They lie as in such memory, at the same places.
    fn is_alone(&self, look: &Arc<Pending>, asked: &ByKey<()>) -> bool {
        let is_start = |layout: &Layout| layout.offset == 0 && layout.is_contiguous();
        if !look.layout.as_ref().is_some_and(is_start) {
            return false;
        }
        let mut look = look.clone();
        loop {
            let viewed = &look.inputs[0];
            let is_asked = asked.contains_key(&viewed.key());
            if is_asked || self.uses(viewed) > 1 || self.is_held(viewed) {
                return false;
            }
            look = match viewed.pending() {
                Some(next) if next.is_look() => next,
                Some(next) => return !next.is_update(),
                None => return false,
            }
        }
    }
}

/// The values that are still to be computed from memory before its last write, at these moments. Values that cannot
/// be computed are left out.
fn readers(written: &ByKey<Moment>) -> Vec<Value> {
    let mut found = Vec::new();
    let mut reads: ByKey<()> = ByKey::default();
    let mut fails: ByKey<()> = ByKey::default();
    let Some(last) = written.values().max() else {
        return found;
    };
    for (value, pending) in live::pending() {
        if pending.recorded >= *last {
            break;
        }
        let (inputs, key) = (&pending.inputs, value.key());
        let is_lost = |input: &Value| {
            let is_stale = || input.overwritten_since(pending.recorded).is_some();
            cannot_be(input, &fails) || !pending.is_look() && is_stale()
        };
        if pending.extent.is_traced || inputs.iter().any(is_lost) {
            fails.insert(key, ());
            continue;
        }
        let is_read = |input: &Value| {
            let memory = || input.memory().map(|memory| memory.id());
            let is_old = |id| {
                written
                    .get(&id)
                    .is_some_and(|moment| pending.recorded < *moment)
            };
            reads.contains_key(&input.key()) || memory().is_some_and(is_old)
        };
        // Looks at the memory, and writes over it, are read by others.
        let shown = (pending.is_look() || pending.is_update()).then(|| &inputs[0]);
        let is_reader = match shown {
            Some(shown) if reads.contains_key(&shown.key()) => true,
            Some(_) => inputs[1..].iter().any(is_read),
            None => inputs.iter().any(is_read),
        };
        if is_reader {
            reads.insert(key, ());
            found.push(value);
        }
    }
    found
}

/// Returns whether it is an operand that cannot be computed.
fn cannot_be(input: &Value, fails: &ByKey<()>) -> bool {
    input.extent().is_traced || fails.contains_key(&input.key())
}
