//! Sums of many products.

use std::sync::Arc;

use rustorch_ir::ops::{Conv2d, Conv2dWeight, ConvTranspose2d, Linear, Matmul};
use rustorch_ir::{DType, Graph, Op, OpError, TensorType};
use rustorch_reference::{Reference, Values};
use rustorch_runtime::{Backend, HostBuffer, Routing, Runtime, Storage};

/// Addends of each sum.
const K: usize = 1000;

/// The largest number whose successor `f32` has: a chain of additions of 1 stays there.
const LARGE: f64 = 16_777_216.0;

/// Products and convolutions of integers have the reference's result to the bit, for sums of many addends. Few of a
/// thousand ones are lost that are added to a large number.
///
/// # Panics
/// Panics if a result differs.
pub fn check_long_sums(device: Arc<dyn Backend>) {
    let reference: Arc<dyn Backend> = Arc::new(Reference::new());
    let [device, reference] = [device, reference].map(|backend| Runtime::new([backend]));
    for (op, shapes) in cases() {
        let graph = graph(&op, &shapes).unwrap();
        let integers = |i: usize, _| (i % 13) as f64 - 6.0;
        let inputs: Vec<_> = shapes.iter().map(|shape| filled(shape, integers)).collect();
        let [here, expected] = [&device, &reference].map(|runtime| run(runtime, &graph, &inputs));
        assert!(here == expected, "{op:?} {shapes:?}");

        let is_large = |_, along_k| if along_k == Some(0) { LARGE } else { 1.0 };
        let ones = shapes[1..].iter().map(|shape| filled(shape, |_, _| 1.0));
        let inputs: Vec<_> = std::iter::once(filled(&shapes[0], is_large))
            .chain(ones)
            .collect();
        for sum in run(&device, &graph, &inputs) {
            let lost = LARGE + (K - 1) as f64 - f64::from(sum);
            assert!(lost.abs() < 300.0, "{op:?} {shapes:?} lost {lost}");
        }
    }
}

/// Operations, and shapes of their operands.
fn cases() -> Vec<(Op, Vec<Vec<usize>>)> {
    vec![
        (Matmul.into(), vec![vec![2, 65, K], vec![2, K, 70]]),
        (Matmul.into(), vec![vec![80, K], vec![K, 20]]),
        (Matmul.into(), vec![vec![1, K], vec![K, 70]]),
        (Matmul.into(), vec![vec![3, K], vec![K, 9]]),
        (Linear.into(), vec![vec![2, K], vec![70, K]]),
        (Linear.into(), vec![vec![65, K], vec![70, K], vec![70]]),
        (
            Conv2d::default().into(),
            vec![vec![1, K, 3, 3], vec![8, K, 1, 1]],
        ),
        (
            Conv2d::default().into(),
            vec![vec![1, 1, 1, K], vec![3, 1, 1, K], vec![3]],
        ),
        (
            ConvTranspose2d::default().into(),
            vec![vec![1, K, 2, 2], vec![K, 8, 1, 1]],
        ),
        (
            Conv2dWeight {
                conv: Conv2d::default(),
                kernel: [1, 1],
            }
            .into(),
            vec![vec![K, 3, 1, 1], vec![K, 5, 1, 1]],
        ),
    ]
}

fn graph(op: &Op, shapes: &[Vec<usize>]) -> Result<Graph, OpError> {
    let mut g = Graph::new();
    let inputs: Result<Vec<_>, _> = shapes
        .iter()
        .map(|shape| g.input(TensorType::new(shape.clone(), DType::F32)))
        .collect();
    let y = g.push(op.clone(), &inputs?)?;
    g.output(y);
    Ok(g)
}

/// A tensor whose elements follow from their index, and from that along the dimension of the addends.
fn filled(shape: &[usize], element: impl Fn(usize, Option<usize>) -> f64) -> Storage {
    let dim = shape.iter().position(|&size| size == K);
    let along_k = |i: usize| dim.map(|dim| i / shape[dim + 1..].iter().product::<usize>() % K);
    let elements = (0..shape.iter().product()).map(|i| element(i, along_k(i)));
    let bytes = Values::Float(elements.collect()).encode(DType::F32);
    Storage::from_host(HostBuffer::copy_of(&bytes).unwrap())
}

fn run(runtime: &Runtime, graph: &Graph, inputs: &[Storage]) -> Vec<f32> {
    let outputs = runtime
        .prepare(graph.clone(), Routing::AUTO)
        .run(inputs)
        .unwrap();
    let mut bytes = vec![0; outputs[0].bytes()];
    runtime.read(&outputs[0], 0, &mut bytes).unwrap();
    let (words, _) = bytes.as_chunks::<4>();
    words.iter().map(|&word| f32::from_ne_bytes(word)).collect()
}
