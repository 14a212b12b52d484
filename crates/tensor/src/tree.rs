//! The short way for values that a few operations compute from what is in memory.

use std::sync::Arc;

use rustorch_ir::{Role, ValueId};
use rustorch_runtime::{Call, Outline, RunError, Runtime, Storage};
use smallvec::SmallVec;

use crate::value::{Pending, State, Value};

/// Operations that a tree has, hardly more, and one behind the other at most.
const MOST: u32 = 8;

/// A value's history, if each result in it is the operand of one operation and nobody has a handle
/// on it, and if it begins with whole tensors in memory and numbers. Its graph is made without maps
/// of values, which would take longer than a few operations on small tensors do.
#[derive(Default)]
pub(crate) struct Tree {
    /// The operations, operands first.
    nodes: SmallVec<[Node; 2]>,
    /// What is in memory, and where.
    inputs: SmallVec<[Value; 4]>,
    pub(crate) storages: SmallVec<[Storage; 4]>,
}

struct Node {
    pending: Arc<Pending>,
    operands: SmallVec<[Operand; 3]>,
    /// Is its result in the memory of an input?
    is_look: bool,
}

/// An operand by its index.
#[derive(Clone, Copy)]
enum Operand {
    Input(u32),
    Node(u32),
}

impl Tree {
    /// Takes the history of a value that `pending` computes: is it a tree? Else the tree is not to
    /// be used.
    ///
    /// # Errors
    /// There is no memory for a number.
    pub(crate) fn grow(
        &mut self,
        pending: &Arc<Pending>,
        runtime: &Runtime,
    ) -> Result<bool, RunError> {
        let root = self.add(pending, runtime)?;
        Ok(root.is_some() && self.nodes.last().is_some_and(|node| !node.is_look))
    }

    /// Is it one operation?
    pub(crate) fn is_alone(&self) -> bool {
        self.nodes.len() == 1
    }

    /// Adds an operation behind those that compute its operands; `None` if it cannot be part of a
    /// tree.
    fn add(
        &mut self,
        pending: &Arc<Pending>,
        runtime: &Runtime,
    ) -> Result<Option<Operand>, RunError> {
        // The history below may be long, and wide.
        let is_small = pending.extent.depth <= MOST && self.nodes.len() < MOST as usize;
        let is_single = pending.results.get().is_none();
        if !is_small || !is_single || pending.is_update() {
            return Ok(None);
        }
        let mut operands = SmallVec::new();
        for value in &pending.inputs {
            let dtype = value.ty().dtype;
            let operand = match &*value.lock() {
                State::Ready(view) if view.is_whole(dtype) && view.is_of(pending.recorded) => {
                    Some(self.input(value, view.storage.clone()))
                }
                State::Scalar(number) => Some(self.input(value, runtime.number(*number, dtype)?)),
                State::Pending(before) if value.others(1) == 0 => self.add(before, runtime)?,
                State::Ready(_) | State::Pending(_) | State::Placeholder | State::Failed(_) => None,
            };
            match operand {
                Some(operand) => operands.push(operand),
                None => return Ok(None),
            }
        }
        let is_look = pending.op.def().role() == Role::View
            && match operands.first() {
                Some(&Operand::Node(at)) => self.nodes[at as usize].is_look,
                Some(Operand::Input(_)) | None => true,
            };
        self.nodes.push(Node {
            pending: pending.clone(),
            operands,
            is_look,
        });
        Ok(Some(Operand::Node(self.nodes.len() as u32 - 1)))
    }

    /// The input that a value in memory is: one for all that show the same.
    fn input(&mut self, value: &Value, storage: Storage) -> Operand {
        let mut known = self.inputs.iter().zip(&self.storages);
        let same = known.position(|(input, known)| {
            known.id() == storage.id() && (input.key() == value.key() || input.ty() == value.ty())
        });
        let at = same.unwrap_or_else(|| {
            self.inputs.push(value.clone());
            self.storages.push(storage);
            self.inputs.len() - 1
        });
        Operand::Input(at as u32)
    }

    /// The graph, whose output is the value.
    pub(crate) fn outline(&self) -> Outline<'_> {
        let mut outline = Outline::new(self.inputs.iter().map(Value::ty));
        let inputs = self.inputs.len() as u32;
        let id = |operand: &Operand| match *operand {
            Operand::Input(at) => ValueId(at),
            Operand::Node(at) => ValueId(inputs + at),
        };
        for node in &self.nodes {
            let operands: SmallVec<[ValueId; 4]> = node.operands.iter().map(id).collect();
            outline.push(&node.pending.op, &operands, 1, node.pending.pin);
        }
        outline.output(ValueId(inputs + self.nodes.len() as u32 - 1));
        outline
    }

    /// The call that recorded an operation of the graph.
    pub(crate) fn recorded(&self, node: usize) -> Option<Call> {
        self.nodes.get(node).map(|node| node.pending.call)
    }
}
