//! Straight-line programs of operations.

use std::fmt;
use std::hash::{Hash, Hasher};

use smallvec::SmallVec;

use crate::{DeviceType, Op, OpError, ResultTypes, Results, Role, Signature, TensorType, check};

/// A value in a [`Graph`]: an input, or a result of a node. Inputs are numbered first, then the
/// results of nodes in their order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ValueId(pub u32);

impl ValueId {
    /// Position among the graph's values.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// An operation applied to values.
#[derive(Clone, Debug)]
pub struct Node {
    /// Operation of the node.
    pub op: Op,
    /// Its operands.
    pub inputs: SmallVec<[ValueId; 4]>,
    /// Types of the results.
    pub outputs: ResultTypes,
    /// The device that the user requested; `None` leaves the choice to the planner.
    pub pin: Option<DeviceType>,
    /// The first result; others are numbered from it on.
    first: ValueId,
}

impl Node {
    /// Key of the node among those that follow the same values: everything else is inferred.
    fn identity(&self) -> (&Op, &[ValueId], Option<DeviceType>) {
        (&self.op, &self.inputs, self.pin)
    }

    /// Type of the first result.
    pub fn output(&self) -> &TensorType {
        &self.outputs[0]
    }

    /// The result with this index.
    pub fn result(&self, index: usize) -> ValueId {
        ValueId(self.first.0 + index as u32)
    }

    /// The results in order.
    pub fn results(&self) -> impl Iterator<Item = ValueId> + use<> {
        (self.first.0..self.first.0 + self.outputs.len() as u32).map(ValueId)
    }

    /// Pairs of a result and the operand that it is written over, both by their indices; see
    /// [`crate::OpDef::overwrites`].
    pub fn overwrites(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let def = self.op.def();
        (0..self.outputs.len()).filter_map(move |i| Some((i, def.overwrites(i)?)))
    }

    /// Returns whether it overwrites an operand.
    pub fn has_effects(&self) -> bool {
        self.overwrites().next().is_some()
    }
}

/// A program without branches: typed inputs, nodes that only use earlier values, outputs.
/// Every type in it was inferred and every byte size fits a `usize`.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    inputs: Vec<TensorType>,
    nodes: Vec<Node>,
    outputs: SmallVec<[ValueId; 4]>,
    /// For each value but the inputs, the index of its node.
    producers: SmallVec<[u32; 4]>,
    /// For each value, a bit: was a node written over it? Words behind the last of these are left out.
    overwritten: SmallVec<[u64; 2]>,
}

/// The word that has a value's bit, and that bit.
fn place(value: ValueId) -> (usize, u64) {
    (value.index() / 64, 1 << (value.index() % 64))
}

impl PartialEq for Graph {
    fn eq(&self, other: &Self) -> bool {
        self.nodes.len() == other.nodes.len()
            && self.inputs == other.inputs
            && self.outputs == other.outputs
            && (self.nodes.iter().map(Node::identity)).eq(other.nodes.iter().map(Node::identity))
    }
}

impl Eq for Graph {}

impl Hash for Graph {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inputs.hash(state);
        self.nodes.len().hash(state);
        self.nodes
            .iter()
            .for_each(|node| node.identity().hash(state));
        self.outputs.hash(state);
    }
}

impl Graph {
    /// An empty graph.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reserves space for this number of nodes with one result each.
    pub fn reserve(&mut self, nodes: usize) {
        // No more than that: graphs are many, and are kept.
        self.nodes.reserve_exact(nodes);
        self.producers.reserve(nodes);
    }

    /// Adds an input. All inputs come before the first node.
    ///
    /// # Errors
    /// Fails for a type whose bytes overflow, or whose rows are not whole blocks. Also fails for an
    /// input after a node.
    pub fn input(&mut self, ty: TensorType) -> Result<ValueId, OpError> {
        check_bytes("input", &ty)?;
        if !self.nodes.is_empty() {
            return Err(OpError::new(
                "input",
                "all inputs before the first node",
                &ty,
            ));
        }
        self.inputs.push(ty);
        Ok(ValueId(self.inputs.len() as u32 - 1))
    }

    /// Adds a node and returns its first result; the others follow it, see [`Graph::results`].
    ///
    /// # Errors
    /// Fails for operands that are not in the graph or were overwritten. Also fails for a write
    /// over a value that is not a state. Also the errors of [`crate::OpDef::infer`].
    pub fn push(&mut self, op: impl Into<Op>, inputs: &[ValueId]) -> Result<ValueId, OpError> {
        self.push_op(op.into(), inputs)
    }

    /// [`Self::push`], compiled once for all operations.
    fn push_op(&mut self, op: Op, inputs: &[ValueId]) -> Result<ValueId, OpError> {
        check::operands(self, &op, inputs)?;
        let outputs = {
            let types: SmallVec<[&TensorType; 4]> = inputs.iter().map(|&v| self.ty(v)).collect();
            op.infer(&types)?
        };
        for ty in &outputs {
            check_bytes(op.name(), ty)?;
        }
        let node = Node {
            op,
            inputs: SmallVec::from_slice(inputs),
            outputs,
            pin: None,
            first: ValueId(self.len() as u32),
        };
        check::effects(self, &node)?;
        for (_, operand) in node.overwrites() {
            let (word, bit) = place(node.inputs[operand]);
            let words = self.overwritten.len().max(word + 1);
            self.overwritten.resize(words, 0);
            self.overwritten[word] |= bit;
        }
        let index = self.nodes.len() as u32;
        self.producers.extend(node.outputs.iter().map(|_| index));
        let first = node.first;
        self.nodes.push(node);
        Ok(first)
    }

    /// Pins the node that computes `value` to a device, or removes the pin. Inputs have no node to
    /// pin.
    pub fn pin(&mut self, value: ValueId, device: Option<DeviceType>) {
        if let Some(index) = self.producer(value) {
            self.nodes[index].pin = device;
        }
    }

    /// Adds `node` of another graph, on `inputs` of this one, and returns its first result.
    ///
    /// # Errors
    /// The same errors as [`Graph::push`].
    pub fn push_node(&mut self, node: &Node, inputs: &[ValueId]) -> Result<ValueId, OpError> {
        let value = self.push(node.op.clone(), inputs)?;
        self.pin(value, node.pin);
        Ok(value)
    }

    /// All results of the node that computes `value`; an input is its own.
    pub fn results(&self, value: ValueId) -> Results {
        match self.node(value) {
            Some(node) => node.results().collect(),
            None => [value].into_iter().collect(),
        }
    }

    /// Returns whether `value`, or its base, was overwritten.
    pub fn is_overwritten(&self, value: ValueId) -> bool {
        let is_noted = || {
            let (word, bit) = place(self.base(value));
            let word = self.overwritten.get(word);
            word.is_some_and(|word| word & bit != 0)
        };
        !self.overwritten.is_empty() && is_noted()
    }

    /// The value whose memory `value` shows: itself, unless it is a view.
    pub fn base(&self, mut value: ValueId) -> ValueId {
        while let Some(node) = self.node(value) {
            if node.op.def().role() != Role::View {
                break;
            }
            value = node.inputs[0];
        }
        value
    }

    /// The value that `value` overwrites, if any.
    pub fn previous(&self, value: ValueId) -> Option<ValueId> {
        let node = self.node(value)?;
        let result = (value.0 - node.first.0) as usize;
        Some(node.inputs[node.op.def().overwrites(result)?])
    }

    /// The input whose updated state `value` is, or `value` itself if it is an input.
    pub fn state_root(&self, mut value: ValueId) -> Option<ValueId> {
        while let Some(previous) = self.previous(value) {
            value = previous;
        }
        self.node(value).is_none().then_some(value)
    }

    /// Makes `value` an output.
    pub fn output(&mut self, value: ValueId) {
        self.outputs.push(value);
    }

    /// Types of the inputs.
    pub fn inputs(&self) -> &[TensorType] {
        &self.inputs
    }

    /// The nodes in order.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The outputs in order.
    pub fn outputs(&self) -> &[ValueId] {
        &self.outputs
    }

    /// Number of values: inputs and results of nodes.
    pub fn len(&self) -> usize {
        self.inputs.len() + self.producers.len()
    }

    /// Returns whether the graph has no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Type of a value.
    pub fn ty(&self, value: ValueId) -> &TensorType {
        match self.node(value) {
            Some(node) => &node.outputs[(value.0 - node.first.0) as usize],
            None => &self.inputs[value.index()],
        }
    }

    /// The node that computes a value; `None` for inputs.
    pub fn node(&self, value: ValueId) -> Option<&Node> {
        Some(&self.nodes[self.producer(value)?])
    }

    /// The index of the node that computes a value; `None` for inputs.
    pub fn producer(&self, value: ValueId) -> Option<usize> {
        let at = value.index().checked_sub(self.inputs.len())?;
        Some(*self.producers.get(at)? as usize)
    }

    /// Calls `ask` with the signature of a node.
    pub fn with_signature<R>(&self, node: &Node, ask: impl FnOnce(&Signature) -> R) -> R {
        let inputs: SmallVec<[&TensorType; 4]> = node.inputs.iter().map(|&v| self.ty(v)).collect();
        ask(&Signature {
            op: &node.op,
            inputs: &inputs,
            outputs: &node.outputs,
        })
    }

    /// Appends the parts of a composite node and returns the results; `inputs` are its operands in
    /// this graph.
    ///
    /// # Errors
    /// Fails if `op` is a primitive.
    pub fn expand(&mut self, op: &Op, inputs: &[ValueId]) -> Result<Results, OpError> {
        op.def().decompose(self, inputs)
    }
}

fn check_bytes(op: &'static str, ty: &TensorType) -> Result<(), OpError> {
    match ty.dtype.bytes_of(&ty.shape) {
        Some(bytes) if bytes <= isize::MAX as usize => Ok(()),
        _ => Err(OpError::new(
            op,
            "a tensor of whole blocks that fits the address space",
            ty,
        )),
    }
}

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, ty) in self.inputs.iter().enumerate() {
            writeln!(f, "%{i}: {ty} = input")?;
        }
        for node in &self.nodes {
            for (i, (value, ty)) in node.results().zip(&node.outputs).enumerate() {
                let comma = if i > 0 { ", " } else { "" };
                write!(f, "{comma}%{}: {ty}", value.0)?;
            }
            write!(f, " = {:?}", node.op)?;
            for v in &node.inputs {
                write!(f, " %{}", v.0)?;
            }
            if let Some(device) = node.pin {
                write!(f, " on {device}")?;
            }
            writeln!(f)?;
        }
        write!(f, "return")?;
        self.outputs.iter().try_for_each(|v| write!(f, " %{}", v.0))
    }
}
