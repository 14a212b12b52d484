//! A shortcut for values that a few operations compute from values in memory.

use std::sync::Arc;

use rustorch_ir::{Role, ValueId};
use rustorch_runtime::{Call, Moment, Outline, RunError, Runtime, Storage};
use smallvec::SmallVec;

use crate::lazy::history::MAX_DEPTH;
use crate::lazy::value::{Pending, State, Value};

/// Operations up to which a tree may have [`MANY`] inputs, and inputs of those that have more: each
/// one is looked for among those before it.
const FEW: usize = 16;

/// Inputs of any tree at most, for the same reason: of `cat` of thousands maps take less.
const MANY: usize = 64;

/// A value's history that is a tree: each result in it is the operand of one operation and has no handle. It
/// begins with whole tensors in memory and numbers. Its graph is made without maps of values, which would take
/// longer than operations on small tensors do.
#[derive(Default)]
pub(crate) struct Tree {
    /// The operations, operands first.
    nodes: SmallVec<[Node; 2]>,
    /// Their operands, one operation's behind the other's.
    operands: SmallVec<[Operand; 4]>,
    /// The leaves in memory, with their places.
    inputs: SmallVec<[Input; 4]>,
    pub(crate) storages: SmallVec<[Storage; 4]>,
}

struct Input {
    value: Value,
    /// Whether it is one for its value only, though others show the same.
    is_apart: bool,
}

struct Node {
    pending: Arc<Pending>,
    /// Is its result in the memory of an input?
    is_look: bool,
}

impl Drop for Tree {
    fn drop(&mut self) {
        for Node { pending, .. } in self.nodes.drain(..) {
            Pending::give_back(pending);
        }
    }
}

/// An operand by its index.
#[derive(Clone, Copy)]
enum Operand {
    Input(u32),
    Node(u32),
}

/// An operation, with the number of its operands that are in the tree already.
struct Open {
    pending: Arc<Pending>,
    operands: usize,
}

impl Tree {
    /// Most operations of a tree: the longest chain of a history.
    pub(crate) const MOST: usize = MAX_DEPTH as usize;

    /// Takes the history of a value that `pending` computes: is it a tree of at most `most`
    /// operations? Else the tree is not to be used. Histories can be long: in a loop, not by recursion.
    ///
    /// # Errors
    /// Fails if memory is too small for a number.
    pub(crate) fn grow(
        &mut self,
        pending: Arc<Pending>,
        most: usize,
        runtime: &Runtime,
    ) -> Result<bool, RunError> {
        let depth = most.min(pending.extent.depth as usize);
        self.nodes.reserve(depth);
        let mut path: SmallVec<[Open; 4]> = SmallVec::with_capacity(depth);
        // Operands that belong to the operations of the path, from the first one's on.
        let mut open_operands: SmallVec<[Operand; 8]> = SmallVec::new();
        let mut next = Some(pending);
        loop {
            if let Some(pending) = next.take() {
                let is_single = pending.results.get().is_none();
                let count = self.nodes.len() + path.len();
                let is_small = count < FEW || self.inputs.len() <= FEW;
                if count >= most || !is_small || !is_single || pending.is_update() {
                    return Ok(false);
                }
                let operands = 0;
                path.push(Open { pending, operands });
            }
            let Some(open) = path.last_mut() else {
                return Ok(self.nodes.last().is_some_and(|node| !node.is_look));
            };
            let Some(value) = open.pending.inputs.get(open.operands) else {
                let count = open.operands;
                if let Some(Open { pending, .. }) = path.pop() {
                    let own = open_operands.len() - count;
                    let node = self.close(pending, &open_operands[own..]);
                    open_operands.truncate(own);
                    open_operands.push(node);
                }
                continue;
            };
            open.operands += 1;
            if self.inputs.len() > MANY {
                return Ok(false);
            }
            if let Some(input) = self.known(value, open.pending.recorded) {
                open_operands.push(input);
                continue;
            }
            let dtype = value.ty().dtype;
            let operand = match &*value.lock() {
                State::Ready(view) if view.is_whole(dtype) && view.is_of(open.pending.recorded) => {
                    self.input(value, view.storage.clone(), view.is_apart)
                }
                State::Scalar(number) => self.input(value, runtime.number(*number, dtype)?, false),
                State::Pending(before) if value.others(1) == 0 => {
                    next = Some(before.clone());
                    continue;
                }
                State::Ready(_) | State::Pending(_) | State::Placeholder | State::Failed(_) => {
                    return Ok(false);
                }
            };
            open_operands.push(operand);
        }
    }

    /// Adds an operation behind those that compute its operands.
    fn close(&mut self, pending: Arc<Pending>, operands: &[Operand]) -> Operand {
        let is_look = pending.op.def().role() == Role::View
            && match operands.first() {
                Some(&Operand::Node(at)) => self.nodes[at as usize].is_look,
                Some(Operand::Input(_)) | None => true,
            };
        operands
            .iter()
            .for_each(|&operand| self.operands.push(operand));
        self.nodes.push(Node { pending, is_look });
        Operand::Node(self.nodes.len() as u32 - 1)
    }

    /// The input for a value that is one already, unless it was written over before a moment.
    fn known(&self, value: &Value, recorded: Moment) -> Option<Operand> {
        let at = (self.inputs.iter()).position(|input| input.value.key() == value.key())?;
        (self.storages[at].overwritten() <= recorded).then_some(Operand::Input(at as u32))
    }

    /// The input that a value in memory is: one for all that show the same, except those that are apart.
    fn input(&mut self, value: &Value, storage: Storage, is_apart: bool) -> Operand {
        let is_same = |(input, known): (&Input, &Storage)| {
            let is_there = known.id() == storage.id() && input.value.ty() == value.ty();
            is_there && !input.is_apart
        };
        let mut known = self.inputs.iter().zip(&self.storages);
        let same = match is_apart {
            true => None,
            false => known.position(is_same),
        };
        let at = same.unwrap_or_else(|| {
            let value = value.clone();
            self.inputs.push(Input { value, is_apart });
            self.storages.push(storage);
            self.inputs.len() - 1
        });
        Operand::Input(at as u32)
    }

    /// The graph, whose output is the value.
    pub(crate) fn outline(&self) -> Outline<'_> {
        let mut outline = Outline::new(self.inputs.iter().map(|input| input.value.ty()));
        // A few have their room already.
        if self.nodes.len() > 2 {
            outline.reserve(self.nodes.len(), self.operands.len());
        }
        let inputs = self.inputs.len() as u32;
        let id = |operand: &Operand| match *operand {
            Operand::Input(at) => ValueId(at),
            Operand::Node(at) => ValueId(inputs + at),
        };
        let mut operands = self.operands.iter().map(id);
        for Node { pending, .. } in &self.nodes {
            let own = operands.by_ref().take(pending.inputs.len());
            outline.push(&pending.op, own, 1, pending.pin);
        }
        outline.output(ValueId(inputs + self.nodes.len() as u32 - 1));
        outline
    }

    /// The operation that computes the value.
    pub(crate) fn root(&self) -> Option<&Pending> {
        self.nodes.last().map(|node| &*node.pending)
    }

    /// The call that recorded an operation of the graph.
    pub(crate) fn recorded(&self, node: usize) -> Option<Call> {
        self.nodes.get(node).map(|node| node.pending.call)
    }
}
