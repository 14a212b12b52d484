//! Graphs that are looked up before they are made.

use std::hash::{Hash, Hasher};

use rustorch_ir::{DeviceType, Graph, Node, Op, OpError, TensorType, ValueId};
use smallvec::SmallVec;

/// The borrowed parts of a graph. The graph is built only if no equal one is known, so repeated computations copy no
/// operations and types.
#[derive(Default)]
pub struct Outline<'a> {
    inputs: SmallVec<[&'a TensorType; 4]>,
    nodes: SmallVec<[Part<'a>; 2]>,
    /// The nodes' operands, one node's behind the other's.
    operands: SmallVec<[ValueId; 8]>,
    outputs: SmallVec<[ValueId; 2]>,
    /// Results of all nodes.
    results: u32,
}

/// A node.
struct Part<'a> {
    op: &'a Op,
    /// Number of its operands.
    operands: usize,
    pin: Option<DeviceType>,
}

impl<'a> Outline<'a> {
    /// A graph without nodes.
    pub fn new(inputs: impl IntoIterator<Item = &'a TensorType>) -> Self {
        let mut outline = Self::default();
        // One by one, which is shorter for a few than collecting them.
        inputs.into_iter().for_each(|ty| outline.inputs.push(ty));
        outline
    }

    /// Makes room for `nodes` nodes, with `operands` operands together.
    pub fn reserve(&mut self, nodes: usize, operands: usize) {
        self.nodes.reserve(nodes);
        self.operands.reserve(operands);
    }

    /// Number of inputs, which are the first values.
    pub fn inputs(&self) -> usize {
        self.inputs.len()
    }

    /// Adds an operation with its number of results, pinned to a device or not.
    pub fn push(
        &mut self,
        op: &'a Op,
        operands: impl IntoIterator<Item = ValueId>,
        results: usize,
        pin: Option<DeviceType>,
    ) -> ValueId {
        let first = ValueId(self.inputs.len() as u32 + self.results);
        self.results += results as u32;
        let before = self.operands.len();
        // One by one, which is shorter for a few than extending the list.
        operands
            .into_iter()
            .for_each(|operand| self.operands.push(operand));
        let operands = self.operands.len() - before;
        self.nodes.push(Part { op, operands, pin });
        first
    }

    /// Makes `value` an output.
    pub fn output(&mut self, value: ValueId) {
        self.outputs.push(value);
    }

    /// Number of outputs.
    pub fn outputs(&self) -> usize {
        self.outputs.len()
    }

    /// The graph.
    ///
    /// # Errors
    /// The same errors as [`Graph::input`] and [`Graph::push`].
    pub fn graph(&self) -> Result<Graph, OpError> {
        let mut graph = Graph::new();
        graph.reserve(self.nodes.len());
        for &ty in &self.inputs {
            graph.input(ty.clone())?;
        }
        for (op, operands, pin) in self.nodes() {
            let first = graph.push(op.clone(), operands)?;
            graph.pin(first, pin);
        }
        for &value in &self.outputs {
            graph.output(value);
        }
        Ok(graph)
    }

    /// The index of each node among the nodes on the same values: as a graph's nodes are compared.
    #[inline]
    fn nodes(&self) -> impl Iterator<Item = (&Op, &[ValueId], Option<DeviceType>)> {
        let mut rest = &self.operands[..];
        self.nodes.iter().map(move |part| {
            let (own, others) = rest.split_at(part.operands);
            rest = others;
            (part.op, own, part.pin)
        })
    }

    /// Returns whether it is this graph.
    pub(crate) fn is(&self, graph: &Graph) -> bool {
        let nodes = graph.nodes();
        let is_node = |(part, node): ((&Op, &[ValueId], Option<DeviceType>), &Node)| {
            part == (&node.op, &node.inputs[..], node.pin)
        };
        nodes.len() == self.nodes.len()
            && graph.inputs().iter().eq(self.inputs.iter().copied())
            && graph.outputs() == &self.outputs[..]
            && self.nodes().zip(nodes).all(is_node)
    }
}

impl Hash for Outline<'_> {
    /// The outline of the graph, so that each finds the other's identity.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inputs.hash(state);
        self.nodes.len().hash(state);
        self.nodes().for_each(|node| node.hash(state));
        self.outputs.hash(state);
    }
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasher, BuildHasherDefault};

    use rustorch_ir::ops::{Binary, BinaryOp, TopK};
    use rustorch_ir::{DType, FoldingHasher};

    use super::*;

    #[test]
    fn it_is_the_graph_that_it_makes() {
        let (ty, number) = (
            TensorType::new([8], DType::F32),
            TensorType::new([], DType::F32),
        );
        let add: Op = Binary { op: BinaryOp::Add }.into();
        let mul: Op = Binary { op: BinaryOp::Mul }.into();
        let top: Op = TopK {
            k: 2,
            dim: 0,
            largest: true,
        }
        .into();
        let outline = |last, pin| {
            let mut outline = Outline::new([&ty, &number]);
            let sum = outline.push(&add, [ValueId(0), ValueId(1)], 1, pin);
            let best = outline.push(&top, [sum], 2, None);
            assert_eq!(best, ValueId(3));
            let index = ValueId(best.0 + 1);
            let last = outline.push(last, [best, best], 1, None);
            outline.output(last);
            outline.output(index);
            outline
        };
        let it = outline(&mul, None);
        let graph = it.graph().unwrap();
        assert_eq!(graph.outputs(), [ValueId(5), ValueId(4)]);
        assert!(it.is(&graph));
        let hasher = BuildHasherDefault::<FoldingHasher>::default();
        assert_eq!(hasher.hash_one(&it), hasher.hash_one(&graph));
        for other in [outline(&add, None), outline(&mul, Some(DeviceType::Cpu))] {
            assert!(!other.is(&graph) && other.graph().unwrap() != graph);
        }
    }
}
