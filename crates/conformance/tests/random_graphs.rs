//! Graphs put together at random, with states that are read, written over, and misused. Graphs that
//! break a rule are refused and never panic. The others run on the processor, planned, fused and
//! with shared memory. Their results are those of the reference, node by node.

use std::sync::Arc;

use rustorch_cpu::Cpu;
use rustorch_ir::ops::{
    Activation, ActivationKind, Assign, BinaryOp, Linear, UnaryOp, UpdateSlice, philox,
};
use rustorch_ir::{DType, Graph, OpError, TensorType, ValueId, check};
use rustorch_reference::Reference;
use rustorch_runtime::{Backend, HostBuffer, Routing, Runtime, Storage};

const SHAPE: [usize; 2] = [4, 8];
/// States, then weights and the start of a slice.
const STATES: usize = 3;
/// Whole numbers up to here are exact in single precision, and so are sums of eight products.
const EXACT: f64 = (1 << 20) as f64;

/// Numbers that follow from a seed.
struct Random {
    seed: u64,
    drawn: u64,
}

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.drawn += 1;
        philox(self.drawn, self.seed)[0] as usize % limit
    }
}

/// A graph in the making.
struct Maker {
    graph: Graph,
    random: Random,
    /// Values of the states' shape, with what their elements are at most.
    values: Vec<(ValueId, f64)>,
    refused: usize,
}

impl Maker {
    fn new(seed: u64) -> Self {
        let mut graph = Graph::new();
        let ty = |shape: [usize; 2]| TensorType::new(shape, DType::F32);
        let states = (0..STATES).map(|_| (graph.input(ty(SHAPE)).unwrap(), 2.0));
        let values = states.collect();
        graph.input(ty([8, 8])).unwrap();
        graph.input(TensorType::new([1], DType::I32)).unwrap();
        Self {
            graph,
            random: Random { seed, drawn: 0 },
            values,
            refused: 0,
        }
    }

    /// A value that is there, most often one of the last; seldom one that is not.
    fn pick(&mut self) -> (ValueId, f64) {
        match self.random.below(40) {
            0 => (ValueId(1000), 1.0),
            n => {
                let count = self.values.len();
                let back = self.random.below(if n < 20 { 3 } else { count });
                self.values[count - 1 - back.min(count - 1)]
            }
        }
    }

    /// Appends a node, or is told why not.
    fn node(&mut self) -> Result<(), OpError> {
        let ((a, x), (b, y)) = (self.pick(), self.pick());
        let (weights, start) = (ValueId(STATES as u32), ValueId(STATES as u32 + 1));
        let g = &mut self.graph;
        let kind = ActivationKind::Relu;
        let (value, most) = match self.random.below(10) {
            0 => (g.unary(UnaryOp::Neg, a)?, x),
            1 | 2 => (g.add(a, b)?, x + y),
            3 | 4 if 8.0 * x < EXACT => (g.push(Linear, &[a, weights])?, 8.0 * x),
            5 if x * y < EXACT => (g.mul(a, b)?, x * y),
            6 => (g.push(Activation { kind }, &[a])?, x),
            7 => {
                let limit = g.constant(3.0, DType::F32)?;
                let value = g.binary(BinaryOp::Minimum, a, limit)?;
                (g.binary(BinaryOp::Maximum, value, limit)?, 3.0)
            }
            8 => (g.push(Assign, &[a, b])?, y),
            9 => {
                let rows = g.slice(b, 0, 1, 3)?;
                (g.push(UpdateSlice { dim: 0 }, &[a, rows, start])?, x.max(y))
            }
            _ => return Ok(()),
        };
        self.values.push((value, most));
        Ok(())
    }

    /// A graph of about so many nodes.
    fn graph(mut self, nodes: usize) -> (Graph, usize) {
        for _ in 0..nodes {
            self.refused += usize::from(self.node().is_err());
        }
        for _ in 0..3 {
            let (value, _) = self.pick();
            let mut with_output = self.graph.clone();
            with_output.output(value);
            match check::outputs(&with_output) {
                Ok(()) => self.graph = with_output,
                Err(_) => self.refused += 1,
            }
        }
        (self.graph, self.refused)
    }
}

/// Outputs and states of a graph after a run.
fn run(runtime: &Runtime, graph: &Graph) -> Vec<Vec<f32>> {
    let numbers = |count: usize, input: usize| {
        let number = move |i: usize| ((i * 7 + input * 5) % 5) as f32 - 2.0;
        let signs = move |i: usize| number(i).signum();
        let value = move |i: usize| if input < STATES { number(i) } else { signs(i) };
        (0..count).flat_map(move |i| value(i).to_ne_bytes())
    };
    let mut inputs: Vec<Vec<u8>> = (0..STATES).map(|i| numbers(32, i).collect()).collect();
    inputs.push(numbers(64, STATES).collect());
    inputs.push(1_i32.to_ne_bytes().to_vec());
    let host = |bytes: &Vec<u8>| Storage::from_host(HostBuffer::copy_of(bytes).unwrap());
    let inputs: Vec<Storage> = inputs.iter().map(host).collect();
    let outputs = runtime.run(graph, &inputs, Routing::AUTO).unwrap();
    let read = |storage: &Storage| {
        let mut bytes = vec![0; storage.bytes()];
        runtime.read(storage, 0, &mut bytes).unwrap();
        let words = bytes.chunks_exact(4);
        words
            .map(|word| f32::from_ne_bytes([word[0], word[1], word[2], word[3]]))
            .collect()
    };
    outputs.iter().chain(&inputs).map(read).collect()
}

#[test]
fn random_graphs_are_refused_or_right() {
    let cpu = Runtime::new([Arc::new(Cpu::new(2)) as Arc<dyn Backend>]);
    let reference = Runtime::new([Arc::new(Reference::new()) as Arc<dyn Backend>]);
    let (mut refused, mut updates) = (0, 0);
    for seed in 0..1500 {
        let (graph, count) = Maker::new(seed).graph(3 + seed as usize % 12);
        refused += count;
        updates += graph
            .nodes()
            .iter()
            .filter(|node| node.has_effects())
            .count();
        let (here, there) = (run(&cpu, &graph), run(&reference, &graph));
        assert!(here == there, "seed {seed}:\n{graph}");
    }
    // It tries what it says.
    assert!(
        refused > 1000 && updates > 500,
        "{refused} refused, {updates} updates"
    );
}
