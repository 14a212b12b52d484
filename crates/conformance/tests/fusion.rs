//! Composites that rules put in place of other operations give what those give alone.

mod running;

use std::sync::Arc;

use running::{run, run_apart};
use rustorch_cpu::Cpu;
use rustorch_ir::ops::{
    Activation, ActivationKind, Attention, BinaryOp, Linear, RmsNorm, Rope, RopeLayout,
    RopeScaling, UpdateSlice,
};
use rustorch_ir::passes::{Fusion, OneDevice, Pass};
use rustorch_ir::{BlockFormat, DType, Graph, Node, Op, Param, TensorType, ValueId};
use rustorch_runtime::{Backend, HostBuffer, Routing, Runtime, Storage};

/// Width of the rows, and of what is between gate and down.
const WIDTH: usize = 512;
const INNER: usize = 768;

/// A graph and the bytes of its inputs.
#[derive(Default)]
struct Layer {
    graph: Graph,
    inputs: Vec<Vec<u8>>,
}

impl Layer {
    fn floats(&mut self, shape: &[usize]) -> ValueId {
        let ty = TensorType::new(shape, DType::F32);
        let seed = self.inputs.len();
        let value = |i: usize| ((i * 37 + seed * 11) % 97) as f32 / 97.0 - 0.4;
        let values = (0..ty.shape.elements()).map(value);
        self.inputs
            .push(values.flat_map(f32::to_ne_bytes).collect());
        self.graph.input(ty).unwrap()
    }

    /// Weights, and a bias if there is one: what [`Linear`] reads beside the rows.
    fn weights(&mut self, [n, k]: [usize; 2], format: BlockFormat, bias: bool) -> Vec<ValueId> {
        let value = |i: usize| ((i * 29) % 101) as f32 / 50.0 - 1.0;
        let values: Vec<f32> = (0..n * k).map(value).collect();
        let ty = TensorType::new([n, k], DType::Block(format));
        let mut bytes = vec![0; ty.bytes()];
        format.quantize(&values, &mut bytes).unwrap();
        self.inputs.push(bytes);
        let mut operands = vec![self.graph.input(ty).unwrap()];
        if bias {
            operands.push(self.floats(&[n]));
        }
        operands
    }

    fn linear(&mut self, x: ValueId, weights: &[ValueId]) -> ValueId {
        let operands: Vec<ValueId> = [x].iter().chain(weights).copied().collect();
        self.graph.push(Linear, &operands).unwrap()
    }

    fn norm(&mut self, x: ValueId, weight: ValueId) -> ValueId {
        let eps = Param(1e-5);
        self.graph.push(RmsNorm { eps }, &[x, weight]).unwrap()
    }

    fn output(&mut self, value: ValueId) -> ValueId {
        self.graph.output(value);
        value
    }

    /// The parts of a decoder's layer but for its attention: attention's operands are outputs, and
    /// its result is an input.
    fn decoder(t: usize, bias: bool) -> Self {
        use BlockFormat::{Q4K, Q6K, Q8_0};
        let mut layer = Self::default();
        let [x, attended] = [0, 1].map(|_| layer.floats(&[t, WIDTH]));
        let norms = [0, 1].map(|_| layer.floats(&[WIDTH]));
        let qkv = [(WIDTH, Q4K), (130, Q4K), (130, Q6K)]
            .map(|(n, format)| layer.weights([n, WIDTH], format, bias));
        let o = layer.weights([WIDTH, WIDTH], Q8_0, bias);
        let gate_up = [0, 1].map(|_| layer.weights([INNER, WIDTH], Q4K, bias));
        let down = layer.weights([WIDTH, INNER], Q6K, bias);

        let y = layer.norm(x, norms[0]);
        for weights in qkv {
            let result = layer.linear(y, &weights);
            layer.output(result);
        }
        let o = layer.linear(attended, &o);
        let x = layer.graph.binary(BinaryOp::Add, x, o).unwrap();
        let y = layer.norm(x, norms[1]);
        let [gate, up] = gate_up.map(|weights| layer.linear(y, &weights));
        let kind = ActivationKind::Silu;
        let gate = layer.graph.push(Activation { kind }, &[gate]).unwrap();
        let gated = layer.graph.binary(BinaryOp::Mul, gate, up).unwrap();
        let down = layer.linear(gated, &down);
        let x = layer.graph.binary(BinaryOp::Add, down, x).unwrap();
        layer.output(x);
        layer
    }
}

/// The graph as rules leave it for a device.
fn fused(graph: &Graph, device: &dyn Backend) -> Graph {
    let place = OneDevice(|s| device.supports(s));
    let fused = Fusion::default().run(graph, &place).unwrap();
    fused.expect("rules find something").graph
}

#[test]
fn fused_on_the_cpu_is_as_alone() {
    for t in [1, 2, 3, 4, 5] {
        for bias in [false, true] {
            let layer = Layer::decoder(t, bias);
            let inputs: Vec<&[u8]> = layer.inputs.iter().map(Vec::as_slice).collect();
            for threads in [1, 3] {
                let cpu = Cpu::new(threads);
                let together = run(&cpu, &fused(&layer.graph, &cpu), &inputs);
                let alone = run_apart(&cpu, &layer.graph, &layer.inputs);
                assert!(
                    together == alone,
                    "{t} rows, bias: {bias}, {threads} threads"
                );
            }
        }
    }
}

/// Names of the composites that rules put into a graph, with what they say of products.
fn composites(graph: &Graph) -> Vec<String> {
    let name = |node: &Node| match &node.op {
        Op::FusedLinear(op) => {
            let norm = if op.norm.is_some() { "norm, " } else { "" };
            Some(format!("{norm}{} products, {:?}", op.count, op.epilogue))
        }
        Op::AddRmsNorm(_) | Op::CachedAttention(_) => Some(node.op.name().to_owned()),
        _ => None,
    };
    graph.nodes().iter().filter_map(name).collect()
}

#[test]
fn a_decoder_layer_of_a_token_is_four_loops() {
    let layer = Layer::decoder(1, true);
    let fused = fused(&layer.graph, &Cpu::new(1));
    assert_eq!(fused.nodes().len(), 4);
    assert_eq!(
        composites(&fused),
        [
            "norm, 3 products, None",
            "1 products, Some(Add)",
            "norm, 2 products, Some(Gate(Silu))",
            "1 products, Some(Add)"
        ]
    );
}

#[test]
fn a_prompt_keeps_its_products() {
    let layer = Layer::decoder(40, true);
    let fused = fused(&layer.graph, &Cpu::new(1));
    assert_eq!(composites(&fused), ["add_rms_norm"]);
}

#[test]
fn an_attention_with_its_cache_is_one_operation() {
    // The reference has no kernel for composites; here it is asked about the shape of the graph.
    let mut g = Graph::new();
    let input =
        |g: &mut Graph, shape: &[usize], dtype| g.input(TensorType::new(shape, dtype)).unwrap();
    let [q, k, v] = [4, 2, 2].map(|heads| input(&mut g, &[heads, 1, 32], DType::F32));
    let [keys, values] = [0, 1].map(|_| input(&mut g, &[2, 40, 32], DType::F16));
    let [positions, past] = [0, 1].map(|_| input(&mut g, &[1], DType::I32));
    let rope = Rope {
        dims: 32,
        layout: RopeLayout::Halves,
        base: 1e4.into(),
        scaling: RopeScaling::NONE,
    };
    let [q, k] = [q, k].map(|x| g.push(rope.clone(), &[x, positions]).unwrap());
    let keys = g.push(UpdateSlice { dim: 1 }, &[keys, k, past]).unwrap();
    let values = g.push(UpdateSlice { dim: 1 }, &[values, v, past]).unwrap();
    let attention = Attention {
        scale: 0.2.into(),
        causal: true,
        soft_cap: None,
        mask: false,
        past: true,
        window: None,
        log_sum_exp: false,
    };
    let y = g.push(attention, &[q, keys, values, past]).unwrap();
    for output in [y, keys, values] {
        g.output(output);
    }
    let fusion = Fusion::default();
    let fused = fusion.run(&g, &OneDevice(|_| true)).unwrap().unwrap();
    assert_eq!(composites(&fused.graph), ["cached_attention"]);
    assert_eq!(fused.origins[0].len(), 5);
    let roots: Vec<Option<ValueId>> = (fused.graph.outputs().iter())
        .map(|&v| fused.graph.state_root(v))
        .collect();
    assert_eq!(roots, [None, Some(ValueId(3)), Some(ValueId(4))]);
    // Fused and not, it gives the same.
    let sizes = [4 * 32, 2 * 32, 2 * 32].map(|n| 4 * n).into_iter();
    let sizes = sizes.chain([2 * 40 * 32 * 2; 2]).chain([4; 2]);
    let bytes: Vec<Vec<u8>> = sizes
        .map(|n| (0..n).map(|i| (i % 60) as u8).collect())
        .collect();
    let storages = || -> Vec<Storage> {
        let mut bytes = bytes.clone();
        bytes[5].copy_from_slice(&7_i32.to_ne_bytes());
        bytes[6].copy_from_slice(&7_i32.to_ne_bytes());
        let host = |b: &Vec<u8>| Storage::from_host(HostBuffer::copy_of(b).unwrap());
        bytes.iter().map(host).collect()
    };
    let runtime = Runtime::new([Arc::new(Cpu::new(1)) as Arc<dyn Backend>]);
    let result = |graph: &Graph| {
        let outputs = runtime.run(graph, &storages(), Routing::AUTO).unwrap();
        let read = |storage: &Storage| {
            let mut bytes = vec![0; storage.bytes()];
            runtime.read(storage, 0, &mut bytes).unwrap();
            bytes
        };
        outputs.iter().map(read).collect::<Vec<_>>()
    };
    assert_eq!(result(&fused.graph), result(&g));
}
