//! Graphs that are made of another graph's nodes.

use crate::{Graph, Op, OpError, Results, ValueId};
use smallvec::SmallVec;

/// A graph that computes the same as another one, made of its nodes. Some nodes are left out, moved
/// or put in.
pub struct Rewriting<'a> {
    source: &'a Graph,
    graph: Graph,
    /// For each node of `graph`, that of the source which it is, or stands for.
    origins: Vec<usize>,
    /// For each value of the source, its value here.
    values: Vec<Option<ValueId>>,
}

impl<'a> Rewriting<'a> {
    /// Begins with the inputs.
    pub fn new(source: &'a Graph) -> Result<Self, OpError> {
        let mut graph = Graph::new();
        let mut values = Vec::with_capacity(source.len());
        for ty in source.inputs() {
            values.push(Some(graph.input(ty.clone())?));
        }
        values.resize(source.len(), None);
        Ok(Self {
            source,
            graph,
            origins: Vec::with_capacity(source.nodes().len()),
            values,
        })
    }

    /// The new graph so far.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The new value of a value of the source.
    ///
    /// # Errors
    /// Fails if the value was not computed yet.
    pub fn value(&self, value: ValueId) -> Result<ValueId, OpError> {
        let expected = "values that are computed before they are read";
        self.values[value.index()].ok_or_else(|| OpError::new("graph", expected, value.0))
    }

    /// From now on a value of the source is this one.
    pub fn set(&mut self, value: ValueId, new: ValueId) {
        self.values[value.index()] = Some(new);
    }

    /// Puts in an operation that stands for a node of the source, and gives its first result.
    ///
    /// # Errors
    /// The errors of [`Graph::push`].
    pub fn push(
        &mut self,
        op: impl Into<Op>,
        operands: &[ValueId],
        origin: usize,
    ) -> Result<ValueId, OpError> {
        let value = self.graph.push(op, operands)?;
        self.graph.pin(value, self.source.nodes()[origin].pin);
        self.origins.push(origin);
        Ok(value)
    }

    /// Puts in a node of the source, on operands as they are now, and gives its results.
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
        let first = self.push(node.op.clone(), &operands, at)?;
        Ok(self.graph.results(first))
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
        let operands = node.inputs.iter().map(|&value| self.value(value));
        let operands: SmallVec<[ValueId; 4]> = operands.collect::<Result<_, _>>()?;
        let results = self.graph.expand(&node.op, &operands)?;
        for part in self.origins.len()..self.graph.nodes().len() {
            let value = self.graph.nodes()[part].result(0);
            self.graph.pin(value, node.pin);
            self.origins.push(at);
        }
        for (value, new) in node.results().zip(results) {
            self.set(value, new);
        }
        Ok(())
    }

    /// The graph with the source's outputs, and for its nodes those of the source that they are, or stand for.
    ///
    /// # Errors
    /// Fails if an output was not computed.
    pub fn finish(mut self) -> Result<(Graph, Vec<usize>), OpError> {
        for &output in self.source.outputs() {
            let output = self.value(output)?;
            self.graph.output(output);
        }
        Ok((self.graph, self.origins))
    }
}
