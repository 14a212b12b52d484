//! Graphs that are made of another graph's nodes.

use smallvec::{SmallVec, smallvec};

use super::{Match, Origins, Rewritten};
use crate::{DeviceType, Graph, Node, Op, OpError, Results, ValueId};

/// A graph that computes the same as another one, made of its nodes. Some nodes are left out, moved,
/// put in or put in place of others.
pub struct Rewriting<'a> {
    source: &'a Graph,
    graph: Graph,
    /// For each node of `graph`, those of the source that it is, or stands for.
    origins: Vec<Origins>,
    /// For each value of the source, its value here.
    values: Vec<Option<ValueId>>,
}

impl<'a> Rewriting<'a> {
    /// Begins with the inputs.
    ///
    /// # Errors
    /// Never fails: the inputs are those of a graph.
    pub fn new(source: &'a Graph) -> Result<Self, OpError> {
        let mut out = Self::empty(source);
        out.inputs()?;
        Ok(out)
    }

    /// Begins with nothing.
    pub fn empty(source: &'a Graph) -> Self {
        Self {
            source,
            graph: Graph::new(),
            origins: Vec::with_capacity(source.nodes().len()),
            values: vec![None; source.len()],
        }
    }

    /// Puts in the source's inputs, before any node.
    ///
    /// # Errors
    /// Never fails: the inputs are those of a graph.
    pub fn inputs(&mut self) -> Result<(), OpError> {
        for (at, ty) in self.source.inputs().iter().enumerate() {
            self.values[at] = Some(self.graph.input(ty.clone())?);
        }
        Ok(())
    }

    /// Reserves space for as many nodes as the source has.
    pub fn reserve(&mut self) {
        self.graph.reserve(self.source.nodes().len());
    }

    /// The graph that is rewritten.
    pub fn source(&self) -> &'a Graph {
        self.source
    }

    /// The new graph so far.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The new value of a value of the source, if it was computed.
    pub fn known(&self, value: ValueId) -> Option<ValueId> {
        self.values[value.index()]
    }

    /// The new value of a value of the source.
    ///
    /// # Errors
    /// Fails if the value was not computed yet.
    pub fn value(&self, value: ValueId) -> Result<ValueId, OpError> {
        let expected = "values that are computed before they are read";
        let missing = || OpError::new("graph", expected, format!("%{}", value.0));
        self.known(value).ok_or_else(missing)
    }

    /// The new values of values of the source.
    ///
    /// # Errors
    /// Fails if one was not computed yet.
    pub fn values(&self, values: &[ValueId]) -> Result<SmallVec<[ValueId; 8]>, OpError> {
        values.iter().map(|&value| self.value(value)).collect()
    }

    /// From now on a value of the source is this one.
    pub fn set(&mut self, value: ValueId, new: ValueId) {
        self.values[value.index()] = Some(new);
    }

    /// Puts in an operation that stands for a node of the source, and gives its first result. It has the
    /// node's pin.
    ///
    /// # Errors
    /// The errors of [`Graph::push`].
    pub fn push(
        &mut self,
        op: impl Into<Op>,
        operands: &[ValueId],
        origin: usize,
    ) -> Result<ValueId, OpError> {
        let pin = self.source.nodes()[origin].pin;
        self.push_on(pin, op, operands, origin)
    }

    /// [`Self::push`], pinned to a device or to none.
    ///
    /// # Errors
    /// The errors of [`Graph::push`].
    pub fn push_on(
        &mut self,
        pin: Option<DeviceType>,
        op: impl Into<Op>,
        operands: &[ValueId],
        origin: usize,
    ) -> Result<ValueId, OpError> {
        let value = self.graph.push(op, operands)?;
        self.graph.pin(value, pin);
        self.origins.push(smallvec![origin]);
        Ok(value)
    }

    /// Puts in a node, that of the source or one that stands for it, and gives its results.
    ///
    /// # Errors
    /// The errors of [`Graph::push`].
    pub fn push_node(
        &mut self,
        node: &Node,
        operands: &[ValueId],
        origin: usize,
    ) -> Result<Results, OpError> {
        let first = self.push_on(node.pin, node.op.clone(), operands, origin)?;
        Ok(self.graph.results(first))
    }

    /// Puts in a node of the source, and gives its results. Its operands are those that `operand` gives,
    /// or else as they are now.
    ///
    /// # Errors
    /// The errors of [`Graph::push`].
    pub fn node(
        &mut self,
        at: usize,
        operand: impl Fn(ValueId) -> Option<ValueId>,
    ) -> Result<Results, OpError> {
        let node = &self.source.nodes()[at];
        let now = |&value: &ValueId| operand(value).map_or_else(|| self.value(value), Ok);
        let operands: SmallVec<[ValueId; 4]> =
            node.inputs.iter().map(now).collect::<Result<_, _>>()?;
        self.push_node(node, &operands, at)
    }

    /// Puts in a node of the source as it is there.
    ///
    /// # Errors
    /// The errors of [`Graph::push`].
    pub fn keep(&mut self, at: usize) -> Result<(), OpError> {
        let results = self.node(at, |_| None)?;
        for (value, new) in self.source.nodes()[at].results().zip(results) {
            self.set(value, new);
        }
        Ok(())
    }

    /// Puts in the parts of a composite node of the source.
    ///
    /// # Errors
    /// The errors of [`Graph::push`]. Also fails if the node is a primitive.
    pub fn expand(&mut self, at: usize) -> Result<(), OpError> {
        let node = &self.source.nodes()[at];
        let operands = self.values(&node.inputs)?;
        let results = self.graph.expand(&node.op, &operands)?;
        for part in self.origins.len()..self.graph.nodes().len() {
            let value = self.graph.nodes()[part].result(0);
            self.graph.pin(value, node.pin);
            self.origins.push(smallvec![at]);
        }
        for (value, new) in node.results().zip(results) {
            self.set(value, new);
        }
        Ok(())
    }

    /// Puts in an operation in place of several nodes of the source.
    ///
    /// # Errors
    /// The errors of [`Graph::push`].
    pub fn replace(&mut self, found: &Match) -> Result<(), OpError> {
        let operands = self.values(&found.inputs)?;
        let first = self.graph.push(found.op.clone(), &operands)?;
        for (&old, new) in found.results.iter().zip(self.graph.results(first)) {
            self.set(old, new);
        }
        self.origins.push(Origins::from_slice(&found.nodes));
        Ok(())
    }

    /// The graph with the source's outputs.
    ///
    /// # Errors
    /// Fails if an output was not computed.
    pub fn finish(self) -> Result<Rewritten, OpError> {
        let outputs = self.values(self.source.outputs())?;
        Ok(self.finish_with(&outputs))
    }

    /// The graph with these outputs.
    pub fn finish_with(mut self, outputs: &[ValueId]) -> Rewritten {
        outputs.iter().for_each(|&value| self.graph.output(value));
        Rewritten {
            graph: self.graph,
            origins: self.origins,
        }
    }
}
