//! Attention of the widths that language models have. It runs by itself, with its gradients, and in a layer.
//! The layer turns queries and keys by their positions and writes keys and values to a cache.

mod common;

use std::process::ExitCode;
use std::sync::Arc;

use common::{Gpus, run};
use rustorch_ir::autodiff::backward;
use rustorch_ir::ops::{
    Attention, Concat, Linear, RmsNorm, Rope, RopeLayout, RopeScaling, UpdateSlice,
};
use rustorch_ir::{DType, Graph, Node, OpKind, TensorType, ValueId};
use rustorch_runtime::{Backend, Executable, HostBuffer, Routing, Runtime, Storage};
use rustorch_testing::tests;

const HEADS: usize = 8;

/// Numbers from -1 to 1.
fn numbers(count: usize, seed: usize) -> Vec<f32> {
    let mut state = seed as u64 + 1;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

fn storage(bytes: &[u8]) -> Storage {
    Storage::from_host(HostBuffer::copy_of(bytes).unwrap())
}

fn floats(count: usize, seed: usize) -> Storage {
    let bytes: Vec<u8> = (numbers(count, seed).iter())
        .flat_map(|x| x.to_ne_bytes())
        .collect();
    storage(&bytes)
}

/// A graph of one output, in single precision, made ready on one backend.
struct Ready {
    runtime: Runtime,
    executable: Executable,
    bytes: usize,
}

impl Ready {
    /// Without a compiler of kernels, what does not come compiled goes to the processor.
    fn new(backend: Arc<dyn Backend>, graph: &Graph) -> Self {
        let routing = Routing {
            device: backend.info().device,
            strict: rustorch_cuda::compiler().is_ok(),
            ..Routing::AUTO
        };
        let runtime = Runtime::new(vec![backend, Arc::new(rustorch_cpu::Cpu::new(0))]);
        Self {
            executable: runtime.prepare(graph.clone(), routing),
            bytes: graph.ty(graph.outputs()[0]).shape.elements() * 4,
            runtime,
        }
    }

    fn run(&self, inputs: &[Storage]) -> Vec<f32> {
        let outputs = self.executable.run(inputs).unwrap();
        let mut bytes = vec![0; self.bytes];
        self.runtime.read(&outputs[0], 0, &mut bytes).unwrap();
        let words = bytes.chunks_exact(4);
        words
            .map(|word| f32::from_ne_bytes(word.try_into().unwrap()))
            .collect()
    }
}

/// The processor's result for a graph.
fn of_cpu(graph: &Graph, inputs: &[Storage]) -> Vec<f32> {
    Ready::new(Arc::new(rustorch_cpu::Cpu::new(0)), graph).run(inputs)
}

/// The sum of squared differences over that of squares.
fn error(y: &[f32], expected: &[f32]) -> f64 {
    let pairs = y.iter().zip(expected);
    let square = |x: f32| f64::from(x).powi(2);
    let difference: f64 = pairs.map(|(a, b)| square(a - b)).sum();
    difference / expected.iter().map(|&x| square(x)).sum::<f64>()
}

fn attention(d: usize) -> Attention {
    Attention {
        scale: (1.0 / (d as f64).sqrt()).into(),
        causal: true,
        soft_cap: None,
        mask: false,
        past: true,
        window: None,
        log_sum_exp: false,
    }
}

/// Queries of `t` tokens, permuted as models have them, for a cache in `dtype`.
fn alone(t: usize, s: usize, d: usize, kv_heads: usize, dtype: DType) -> Graph {
    let mut g = Graph::new();
    let mut input = |shape: [usize; 3]| g.input(TensorType::new(shape, DType::F32)).unwrap();
    let [q, k, v] = [
        input([t, HEADS, d]),
        input([kv_heads, s, d]),
        input([kv_heads, s, d]),
    ];
    let past = g.input(TensorType::new([1], DType::I32)).unwrap();
    let q = g.permute(q, &[1, 0, 2]).unwrap();
    let [k, v] = [k, v].map(|x| g.cast(x, dtype).unwrap());
    let y = g.push(attention(d), &[q, k, v, past]).unwrap();
    g.output(y);
    g
}

fn attention_of_models_equals_that_of_the_cpu(gpus: &Gpus) {
    for gpu in gpus {
        for dtype in [DType::F16, DType::BF16, DType::F32] {
            for (d, kv_heads) in [(64, 1), (128, 2), (128, 8)] {
                for (t, past) in [(1, 0), (1, 700), (3, 255), (16, 300), (17, 0), (150, 333)] {
                    let s = 720;
                    let graph = alone(t, s, d, kv_heads, dtype);
                    let past = i32::to_ne_bytes(past);
                    let inputs = [
                        floats(t * HEADS * d, 1),
                        floats(kv_heads * s * d, 2),
                        floats(kv_heads * s * d, 3),
                        storage(&past),
                    ];
                    let y = Ready::new(gpu.clone(), &graph).run(&inputs);
                    let expected = of_cpu(&graph, &inputs);
                    let error = error(&y, &expected);
                    // The limit is the error of weights in the cache's type.
                    let limit = if dtype == DType::BF16 { 2e-5 } else { 1e-6 };
                    assert!(error < limit, "{dtype} {d} {kv_heads} {t}: {error:.1e}");
                }
            }
        }
    }
}

/// How keys and values of several batches lie in memory.
#[derive(Clone, Copy, Debug)]
enum Order {
    /// Heads behind each other, or the heads of a token.
    Heads,
    Tokens,
    /// A batch of two dimensions, the first of which changes fastest.
    Crossed,
    /// The same for the whole batch, or for all heads.
    OneForBatch,
    OneForHeads,
}

/// Attention of queries, keys and values in `dtype`, without a past.
fn batched(t: usize, s: usize, d: usize, causal: bool, dtype: DType, order: Order) -> Graph {
    const BATCH: [usize; 2] = [3, 2];
    let mut g = Graph::new();
    let [a, b] = BATCH;
    let given = [t, s, s].map(|rows| {
        let (shape, dims) = match order {
            Order::Heads => ([a, b, HEADS, rows, d], [0, 1, 2, 3, 4]),
            Order::Tokens => ([a, b, rows, HEADS, d], [0, 1, 3, 2, 4]),
            Order::Crossed => ([b, a, HEADS, rows, d], [1, 0, 2, 3, 4]),
            Order::OneForBatch => ([1, 1, HEADS, rows, d], [0, 1, 2, 3, 4]),
            Order::OneForHeads => ([a, b, 1, rows, d], [0, 1, 2, 3, 4]),
        };
        let x = g.input(TensorType::new(shape, DType::F32)).unwrap();
        (x, dims, [a, b, HEADS, rows, d])
    });
    let [q, k, v] = given.map(|(x, dims, all)| {
        let x = g.cast(x, dtype).unwrap();
        let x = g.permute(x, &dims).unwrap();
        g.broadcast(x, all).unwrap()
    });
    let op = Attention {
        causal,
        past: false,
        ..attention(d)
    };
    let y = g.push(op, &[q, k, v]).unwrap();
    let y = g.cast(y, DType::F32).unwrap();
    g.output(y);
    g
}

fn attention_of_batches_equals_that_of_the_cpu(gpus: &Gpus) {
    use Order::{Crossed, Heads, OneForBatch, OneForHeads, Tokens};
    for gpu in gpus {
        for dtype in [DType::F16, DType::BF16] {
            for (t, s, d, causal, order) in [
                (17, 17, 64, true, Heads),
                (200, 200, 64, true, Tokens),
                (450, 450, 64, true, Crossed),
                (450, 300, 64, true, OneForBatch),
                (260, 330, 64, false, OneForHeads),
                (130, 130, 128, true, Heads),
                (384, 384, 128, true, Tokens),
                (300, 200, 128, true, Crossed),
                (150, 333, 128, false, OneForBatch),
                (70, 600, 128, true, OneForHeads),
            ] {
                let graph = batched(t, s, d, causal, dtype, order);
                let inputs = [0, 1, 2].map(|i| {
                    let ty = &graph.inputs()[i];
                    floats(ty.shape.elements(), i + 1)
                });
                let ready = Ready::new(gpu.clone(), &graph);
                let y = ready.run(&inputs);
                let expected = of_cpu(&graph, &inputs);
                let error = error(&y, &expected);
                // The limit is the error of weights and results in this type.
                let limit = if dtype == DType::BF16 { 2e-5 } else { 1e-6 };
                assert!(
                    error < limit,
                    "{dtype} {t} {s} {d} {causal} {order:?}: {error:.1e}"
                );
                // Numbers are added in a fixed order, so a second run gives the same bits.
                assert_eq!(ready.run(&inputs), y);
            }
        }
    }
}

/// The gradients of queries, keys and values, one after the other. Attention is causal among `t`
/// tokens, whose heads lie as models have them, or of all tokens to `s` keys.
fn gradients(t: usize, s: usize, d: usize, causal: bool, dtype: DType) -> Graph {
    let kv_heads = HEADS / 2;
    let mut g = Graph::new();
    let shapes = [(HEADS, t), (kv_heads, s), (kv_heads, s), (HEADS, t)];
    let given = shapes.map(|(heads, rows)| {
        let ty = TensorType::new([rows, heads, d], DType::F32);
        g.input(ty).unwrap()
    });
    let operands = given.map(|x| {
        let x = g.cast(x, dtype).unwrap();
        g.permute(x, &[1, 0, 2]).unwrap()
    });
    let [q, k, v, d_y] = operands;
    let first = g.nodes().len();
    let op = Attention {
        causal,
        past: false,
        window: None,
        log_sum_exp: true,
        ..attention(d)
    };
    let y = g.push(op, &[q, k, v]).unwrap();
    let nodes = first..g.nodes().len();
    let found = backward(&mut g, nodes, &[(y, d_y)], &[q, k, v]).unwrap();
    let is_backward = |node: &Node| node.op.kind() == OpKind::AttentionBackward;
    assert_eq!(g.nodes().iter().filter(|node| is_backward(node)).count(), 1);
    let flat = found.into_iter().map(|x| {
        let x = x.unwrap();
        let x = g.reshape(x, [g.ty(x).shape.elements()]).unwrap();
        g.cast(x, DType::F32).unwrap()
    });
    let flat: Vec<ValueId> = flat.collect();
    let all = g.push(Concat { dim: 0 }, &flat).unwrap();
    g.output(all);
    g
}

fn gradients_of_attention_equal_those_of_the_cpu(gpus: &Gpus) {
    for gpu in gpus {
        for dtype in [DType::F16, DType::BF16] {
            for (t, s, d, causal) in [
                (1, 1, 64, true),
                (300, 300, 64, true),
                (130, 70, 64, true),
                (70, 333, 64, true),
                (77, 301, 64, false),
                (256, 256, 128, true),
                (200, 333, 128, false),
            ] {
                let graph = gradients(t, s, d, causal, dtype);
                let inputs = [
                    floats(t * HEADS * d, 1),
                    floats(s * HEADS / 2 * d, 2),
                    floats(s * HEADS / 2 * d, 3),
                    floats(t * HEADS * d, 4),
                ];
                let ready = Ready::new(gpu.clone(), &graph);
                let y = ready.run(&inputs);
                let expected = of_cpu(&graph, &inputs);
                let error = error(&y, &expected);
                // The limit is the error of weights and their gradients in this type.
                let limit = if dtype == DType::BF16 { 5e-5 } else { 1e-6 };
                assert!(error < limit, "{dtype} {t} {s} {d} {causal}: {error:.1e}");
                // Numbers are added in a fixed order, so a second run gives the same bits.
                assert_eq!(ready.run(&inputs), y);
            }
        }
    }
}

/// A layer's attention for a token, from the norm on.
fn layer(s: usize, d: usize, kv_heads: usize, dtype: DType, rope: &Rope) -> Graph {
    let width = HEADS * d;
    let mut g = Graph::new();
    let mut input = |shape: &[usize], dtype| {
        let ty = TensorType::new(shape.to_vec(), dtype);
        g.input(ty).unwrap()
    };
    let x = input(&[1, width], DType::F32);
    let weights = [HEADS, kv_heads, kv_heads].map(|heads| input(&[heads * d, width], DType::F32));
    let norm = input(&[width], DType::F32);
    let caches = [(); 2].map(|()| input(&[kv_heads, s, d], dtype));
    let position = input(&[1], DType::I32);
    let factors = input(&[rope.dims / 2], DType::F32);
    let x = g.push(RmsNorm { eps: 1e-5.into() }, &[x, norm]).unwrap();
    let vectors = |g: &mut Graph, weight: ValueId, heads: usize| {
        let y = g.push(Linear, &[x, weight]).unwrap();
        let y = g.reshape(y, [1, heads, d]).unwrap();
        g.permute(y, &[1, 0, 2]).unwrap()
    };
    let q = vectors(&mut g, weights[0], HEADS);
    let k = vectors(&mut g, weights[1], kv_heads);
    let v = vectors(&mut g, weights[2], kv_heads);
    let [q, k] = [q, k].map(|x| g.push(rope.clone(), &[x, position, factors]).unwrap());
    let mut write = |cache: ValueId, x: ValueId| {
        let update = UpdateSlice { dim: 1 };
        g.push(update, &[cache, x, position]).unwrap()
    };
    let (k, v) = (write(caches[0], k), write(caches[1], v));
    let y = g.push(attention(d), &[q, k, v, position]).unwrap();
    g.output(y);
    g
}

fn the_attention_of_a_layer_equals_that_of_the_cpu(gpus: &Gpus) {
    let mut backends = gpus.clone();
    backends.insert(0, Arc::new(rustorch_cpu::Cpu::new(0)));
    for layout in [RopeLayout::Interleaved, RopeLayout::Halves] {
        for (d, kv_heads, dims) in [(64, 1, 64), (128, 2, 128), (128, 2, 96)] {
            let (s, width) = (300, HEADS * d);
            let rope = Rope {
                dims,
                layout,
                base: 500_000.0.into(),
                scaling: RopeScaling::NONE,
            };
            let graph = layer(s, d, kv_heads, DType::F16, &rope);
            let results = backends.iter().map(|backend| {
                let ready = Ready::new(backend.clone(), &graph);
                let mut inputs = vec![floats(width, 0)];
                for (seed, heads) in [HEADS, kv_heads, kv_heads].into_iter().enumerate() {
                    inputs.push(floats(heads * d * width, seed + 1));
                }
                inputs.push(floats(width, 4));
                for _ in 0..2 {
                    inputs.push(storage(&vec![0; kv_heads * s * d * 2]));
                }
                let factors = (1..=dims / 2).flat_map(|i| (i as f32).to_ne_bytes());
                let factors: Vec<u8> = factors.collect();
                let position = inputs.len();
                inputs.extend([storage(&[0; 4]), storage(&factors)]);
                // Each pass reads what those before have written.
                (0..s)
                    .flat_map(|past| {
                        inputs[0] = floats(width, past + 10);
                        inputs[position] = storage(&i32::try_from(past).unwrap().to_ne_bytes());
                        ready.run(&inputs)
                    })
                    .collect::<Vec<f32>>()
            });
            let results: Vec<Vec<f32>> = results.collect();
            for result in &results[1..] {
                let error = error(result, &results[0]);
                assert!(error < 1e-6, "{layout:?} {d} {dims}: {error:.1e}");
            }
        }
    }
}

fn main() -> ExitCode {
    run(tests![
        attention_of_models_equals_that_of_the_cpu,
        attention_of_batches_equals_that_of_the_cpu,
        gradients_of_attention_equal_those_of_the_cpu,
        the_attention_of_a_layer_equals_that_of_the_cpu
    ])
}
