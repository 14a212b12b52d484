//! Random graphs of several operations.

use std::sync::Arc;

use rustorch_conformance::Extent;
use rustorch_coreml::{Opset, Precision};
use rustorch_ir::ops::{
    Activation, ActivationKind, Binary, BinaryOp, Concat, Matmul, Pad, Permute, Reduce, ReduceOp,
    Reshape, Slice, Softmax, philox,
};
use rustorch_ir::{DType, Graph, Op, Shape, TensorType, ValueId};
use rustorch_reference::Reference;
use rustorch_runtime::{Backend, HostBuffer, Routing, Runtime, Storage};

use crate::device::{Device, Known};
use crate::{error, operands, target, values};

/// Elements of the largest tensor.
const MOST: usize = 2048;

/// Numbers that a seed gives.
struct Random {
    seed: u64,
    drawn: u64,
}

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.drawn += 1;
        philox(self.drawn, self.seed)[0] as usize % n
    }

    fn choose<T: Clone>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())].clone()
    }
}

/// Makes a graph of about ten operations on positive numbers, none of which makes small errors large.
fn random_graph(seed: u64) -> Graph {
    let mut random = Random { seed, drawn: 0 };
    let mut graph = Graph::new();
    let mut known = Vec::new();
    for _ in 0..=random.below(3) {
        let shape: Shape = (0..=random.below(4)).map(|_| 1 + random.below(6)).collect();
        known.push(graph.input(TensorType::new(shape, DType::F32)).unwrap());
    }
    for _ in 0..20 {
        let operands = [random.choose(&known), random.choose(&known)];
        let (op, count) = random_op(&mut random, &graph.ty(operands[0]).shape);
        let types: Vec<&TensorType> = operands[..count].iter().map(|&v| graph.ty(v)).collect();
        let fits = |ty: &TensorType| ty.rank() <= 5 && (1..=MOST).contains(&ty.shape.elements());
        if op
            .infer(&types)
            .is_ok_and(|results| results.iter().all(fits))
        {
            known.push(graph.push(op, &operands[..count]).unwrap());
        }
    }
    let last: ValueId = known[known.len() - 1];
    [last, random.choose(&known)]
        .into_iter()
        .for_each(|value| graph.output(value));
    graph
}

/// An operation on a tensor of this shape, and how many operands it has. It need not be defined.
fn random_op(random: &mut Random, shape: &Shape) -> (Op, usize) {
    let rank = shape.len();
    let dim = random.below(rank.max(1));
    let size = shape.get(dim).copied().unwrap_or(1);
    match random.below(10) {
        0 => {
            let kind = random.choose(ActivationKind::ALL);
            (Activation { kind }.into(), 1)
        }
        1 | 2 => {
            let op = random.choose(&[BinaryOp::Add, BinaryOp::Mul, BinaryOp::Maximum]);
            (Binary { op }.into(), 2)
        }
        3 => {
            let turn = random.below(rank.max(1));
            let dims = (0..rank).map(|d| (d + turn) % rank.max(1)).collect();
            (Permute { dims }.into(), 1)
        }
        4 => {
            let count = shape.elements();
            let shape = random.choose(&[vec![count], vec![1, count], vec![count / 2, 2]]);
            let shape = shape.into();
            (Reshape { shape }.into(), 1)
        }
        5 => {
            let start = random.below(size);
            let step = 1 + random.below(2);
            let end = size;
            (
                Slice {
                    dim,
                    start,
                    end,
                    step,
                }
                .into(),
                1,
            )
        }
        6 => (Softmax { dim, log: false }.into(), 1),
        7 => {
            let op = random.choose(&[ReduceOp::Sum, ReduceOp::Max, ReduceOp::Min]);
            let keepdim = random.below(2) == 0;
            let dims = [dim].into_iter().collect();
            (Reduce { op, dims, keepdim }.into(), 1)
        }
        8 => {
            let padding = (0..rank)
                .map(|_| (random.below(2), random.below(3)))
                .collect();
            let value = 0.5.into();
            (Pad { padding, value }.into(), 1)
        }
        _ => match random.below(2) {
            0 => (Concat { dim }.into(), 2),
            _ => (Matmul.into(), 2),
        },
    }
}

/// Outputs of a graph as the reference gives them.
fn expected(reference: &Runtime, graph: &Graph, operands: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let storage = |bytes: &Vec<u8>| Storage::from_host(HostBuffer::copy_of(bytes).unwrap());
    let inputs: Vec<Storage> = operands.iter().map(storage).collect();
    let outputs = reference
        .prepare(graph.clone(), Routing::AUTO)
        .run(&inputs)
        .unwrap();
    let read = |output: &Storage| {
        let mut bytes = vec![0; output.bytes()];
        reference.read(output, 0, &mut bytes).unwrap();
        bytes
    };
    outputs.iter().map(read).collect()
}

/// Runs random graphs on a device: a hundred, or a thousand.
pub(crate) fn runs(device: &Device) {
    let reference: Arc<dyn Backend> = Arc::new(Reference::new());
    let reference = Runtime::new([reference]);
    let mut nodes = 0;
    for seed in Extent::of_tests().choose(0..1000, 100) {
        let graph = random_graph(seed);
        let operands = operands(&graph);
        let results = device.predict(&graph, &operands);
        let results = results.unwrap_or_else(|e| panic!("{e} in {seed}\n{graph}"));
        for (result, expected) in results.iter().zip(expected(&reference, &graph, &operands)) {
            let [result, expected] =
                [result, &expected].map(|bytes| values::decode(DType::F32, bytes));
            let error = error(&result, &expected);
            assert!(error < 1e-7, "{error:e} in {seed}\n{graph}");
        }
        nodes += graph.nodes().len();
    }
    assert!(nodes > 500, "{nodes}");
}

pub(crate) fn graphs_give_what_the_reference_gives() {
    let target = target(Opset::CoreML6, Precision::F32);
    runs(&Device::new(target, Known::AllButTheFirst));
}
