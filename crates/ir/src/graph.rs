//! Straight-line programs of operations.

use std::fmt;

use smallvec::SmallVec;

use crate::{DeviceType, Op, OpError, Role, Signature, TensorType};

/// A value in a [`Graph`]: an input, or the result of a node. Inputs are numbered first,
/// then nodes in their order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ValueId(pub u32);

impl ValueId {
    /// Position among the graph's values.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// One operation applied to values.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Node {
    /// What is done.
    pub op: Op,
    /// To what.
    pub inputs: SmallVec<[ValueId; 4]>,
    /// Type of the result.
    pub output: TensorType,
    /// The device that the user wants it on; `None` to leave the choice to the planner.
    pub pin: Option<DeviceType>,
}

/// A program without branches: typed inputs, nodes that only use earlier values, outputs.
/// Every type in it was inferred and every byte size fits a `usize`.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Graph {
    inputs: Vec<TensorType>,
    nodes: Vec<Node>,
    outputs: Vec<ValueId>,
}

impl Graph {
    /// An empty graph.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an input. All inputs come before the first node.
    ///
    /// # Errors
    /// A type whose bytes overflow, or whose rows are not whole blocks; an input after a node.
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

    /// Adds a node and returns its result.
    ///
    /// # Errors
    /// Whatever [`crate::OpDef::infer`] finds wrong.
    pub fn push(&mut self, op: impl Into<Op>, inputs: &[ValueId]) -> Result<ValueId, OpError> {
        let op = op.into();
        let output = {
            let types: SmallVec<[&TensorType; 4]> = inputs.iter().map(|&v| self.ty(v)).collect();
            op.def().infer(&types)?
        };
        check_bytes(op.name(), &output)?;
        if op.def().role() == Role::State {
            self.check_state(op.name(), inputs[0])?;
        }
        self.nodes.push(Node {
            op,
            inputs: inputs.into(),
            output,
            pin: None,
        });
        Ok(ValueId((self.len() - 1) as u32))
    }

    /// Asks for the node that computes `value` to run on a device, or takes that back. Inputs
    /// have no node to ask for.
    pub fn pin(&mut self, value: ValueId, device: Option<DeviceType>) {
        let node = value.index().checked_sub(self.inputs.len());
        if let Some(node) = node.and_then(|i| self.nodes.get_mut(i)) {
            node.pin = device;
        }
    }

    /// Adds `node` of another graph, on `inputs` of this one, and returns its result.
    ///
    /// # Errors
    /// As [`Graph::push`].
    pub fn push_node(&mut self, node: &Node, inputs: &[ValueId]) -> Result<ValueId, OpError> {
        let value = self.push(node.op.clone(), inputs)?;
        self.pin(value, node.pin);
        Ok(value)
    }

    /// A state buffer is an input that nothing else in the graph has read.
    fn check_state(&self, op: &'static str, state: ValueId) -> Result<(), OpError> {
        let root = self.state_root(state);
        let used = self.nodes.iter().any(|n| n.inputs.contains(&state));
        if root.is_none() || used {
            return Err(OpError::new(
                op,
                "a state buffer: a graph input, or the result of its last update, that nothing has read",
                format!("value {}", state.0),
            ));
        }
        Ok(())
    }

    /// The input that `value` is the updated state of, or that it is itself.
    pub fn state_root(&self, mut value: ValueId) -> Option<ValueId> {
        while let Some(node) = self.node(value) {
            if node.op.def().role() != Role::State {
                return None;
            }
            value = node.inputs[0];
        }
        Some(value)
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

    /// Number of values: inputs and nodes.
    pub fn len(&self) -> usize {
        self.inputs.len() + self.nodes.len()
    }

    /// No values at all?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Type of a value.
    pub fn ty(&self, value: ValueId) -> &TensorType {
        match self.node(value) {
            Some(node) => &node.output,
            None => &self.inputs[value.index()],
        }
    }

    /// The node that computes a value; `None` for inputs.
    pub fn node(&self, value: ValueId) -> Option<&Node> {
        self.nodes
            .get(value.index().checked_sub(self.inputs.len())?)
    }

    /// The value that the `index`-th node computes.
    pub fn value_of(&self, index: usize) -> ValueId {
        ValueId((self.inputs.len() + index) as u32)
    }

    /// Calls `ask` with the signature of a node.
    pub fn with_signature<R>(&self, node: &Node, ask: impl FnOnce(&Signature) -> R) -> R {
        let inputs: SmallVec<[&TensorType; 4]> = node.inputs.iter().map(|&v| self.ty(v)).collect();
        ask(&Signature {
            op: &node.op,
            inputs: &inputs,
            output: &node.output,
        })
    }

    /// Appends what a composite node is made of and returns the result; `inputs` are its
    /// operands in this graph.
    ///
    /// # Errors
    /// `op` is a primitive.
    pub fn expand(&mut self, op: &Op, inputs: &[ValueId]) -> Result<ValueId, OpError> {
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
        for (i, node) in self.nodes.iter().enumerate() {
            write!(
                f,
                "%{}: {} = {:?}",
                self.inputs.len() + i,
                node.output,
                node.op
            )?;
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
