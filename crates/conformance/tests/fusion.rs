//! Composites that rules put in place of other operations give what those give alone.

mod running;

use std::sync::Arc;

use running::{run, run_apart};
use rustorch_cpu::Cpu;
use rustorch_ir::ops::{
    Activation, ActivationKind, Attention, BinaryOp, Embedding, ExpertEpilogue, ExpertLinear,
    Linear, Reduce, ReduceOp, RmsNorm, Rope, RopeLayout, RopeScaling, Softmax, Ternary, TernaryOp,
    TopK, UpdateSlice,
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
        let mut operands = vec![self.blocks(&[n, k], format)];
        operands.extend(bias.then(|| self.floats(&[n])));
        operands
    }

    fn blocks(&mut self, shape: &[usize], format: BlockFormat) -> ValueId {
        let value = |i: usize| ((i * 29) % 101) as f32 / 50.0 - 1.0;
        let values: Vec<f32> = (0..shape.iter().product()).map(value).collect();
        let ty = TensorType::new(shape, DType::Block(format));
        let mut bytes = vec![0; ty.bytes()];
        format.quantize(&values, &mut bytes).unwrap();
        self.inputs.push(bytes);
        self.graph.input(ty).unwrap()
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

/// Experts of a layer: all composites, whether a device has kernels for them or not.
const EXPERTS: usize = 6;
const USED: usize = 2;

impl Layer {
    /// The weights of all experts, and rows of biases if there are biases.
    fn experts(&mut self, [n, k]: [usize; 2], format: BlockFormat, bias: bool) -> Vec<ValueId> {
        let mut operands = vec![self.blocks(&[EXPERTS, n, k], format)];
        operands.extend(bias.then(|| self.floats(&[EXPERTS, n])));
        operands
    }

    fn expert_linear(&mut self, x: ValueId, weights: &[ValueId], ids: ValueId) -> ValueId {
        let y = self
            .graph
            .push(ExpertLinear, &[x, weights[0], ids])
            .unwrap();
        weights[1..].iter().fold(y, |y, &bias| {
            let dtype = DType::F32;
            let rows = self.graph.push(Embedding { dtype }, &[bias, ids]).unwrap();
            self.graph.add(y, rows).unwrap()
        })
    }

    /// A mixture of experts with its residual, with biases and the clamped gate of gpt-oss or without.
    fn mixture(t: usize, clamped: bool) -> Self {
        let mut layer = Self::default();
        let x = layer.floats(&[t, WIDTH]);
        let router = layer.floats(&[EXPERTS, WIDTH]);
        let gate_up = [0, 1].map(|_| layer.experts([INNER, WIDTH], BlockFormat::Q4K, clamped));
        let down = layer.experts([WIDTH, INNER], BlockFormat::Q6K, clamped);

        let logits = layer.linear(x, &[router]);
        let g = &mut layer.graph;
        let (k, dim, largest) = (USED, 1, true);
        let best = g.push(TopK { k, dim, largest }, &[logits]).unwrap();
        let ids = g.results(best)[1];
        let weights = g.push(Softmax { dim, log: false }, &[best]).unwrap();
        let weights = g.reshape(weights, [t, USED, 1]).unwrap();
        let rows = g.reshape(x, [t, 1, WIDTH]).unwrap();
        let [gate, up] = gate_up.map(|weights| layer.expert_linear(rows, &weights, ids));
        let g = &mut layer.graph;
        let y = match clamped {
            false => {
                let kind = ActivationKind::Silu;
                let gate = g.push(Activation { kind }, &[gate]).unwrap();
                g.mul(gate, up).unwrap()
            }
            true => {
                let [limit, low, one] =
                    [0.5, -0.5, 1.0].map(|v| g.constant(v, DType::F32).unwrap());
                let gate = g.binary(BinaryOp::Minimum, gate, limit).unwrap();
                let scaled = g.mul_scalar(gate, 1.702).unwrap();
                let kind = ActivationKind::Sigmoid;
                let scaled = g.push(Activation { kind }, &[scaled]).unwrap();
                let gate = g.mul(gate, scaled).unwrap();
                let op = TernaryOp::Clamp;
                let up = g.push(Ternary { op }, &[up, low, limit]).unwrap();
                let up = g.add(up, one).unwrap();
                g.mul(gate, up).unwrap()
            }
        };
        let y = layer.expert_linear(y, &down, ids);
        let g = &mut layer.graph;
        let y = g.mul(y, weights).unwrap();
        let (op, dims, keepdim) = (ReduceOp::Sum, [1].into_iter().collect(), false);
        let y = g.push(Reduce { op, dims, keepdim }, &[y]).unwrap();
        let y = g.add(x, y).unwrap();
        layer.output(y);
        layer
    }
}

#[test]
fn a_mixture_of_experts_is_few_operations() {
    for (clamped, gate) in [
        (false, "gate of 2 operations, 0 tables"),
        (true, "gate of 13 operations, 2 tables"),
    ] {
        let layer = Layer::mixture(3, clamped);
        let fusion = Fusion::default();
        let fused = fusion
            .run(&layer.graph, &OneDevice(|_| true))
            .unwrap()
            .unwrap();
        let sum = format!("sum, {} tables, adds: true", u8::from(clamped));
        assert_eq!(composites(&fused.graph), ["top_k_softmax", gate, &sum]);
        // Fused and not, it gives the same.
        let runtime = Runtime::new([Arc::new(Cpu::new(1)) as Arc<dyn Backend>]);
        let result = |graph: &Graph| {
            let host = |b: &Vec<u8>| Storage::from_host(HostBuffer::copy_of(b).unwrap());
            let inputs: Vec<Storage> = layer.inputs.iter().map(host).collect();
            let outputs = runtime.run(graph, &inputs, Routing::AUTO).unwrap();
            let mut bytes = vec![0; outputs[0].bytes()];
            runtime.read(&outputs[0], 0, &mut bytes).unwrap();
            bytes
        };
        let bytes = result(&layer.graph);
        assert!(bytes.iter().any(|&byte| byte != 0));
        assert!(result(&fused.graph) == bytes, "clamped: {clamped}");
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
        Op::FusedExpertLinear(op) => Some(match &op.epilogue {
            ExpertEpilogue::Gate(body) => {
                format!(
                    "gate of {} operations, {} tables",
                    body.nodes().len(),
                    op.tables
                )
            }
            ExpertEpilogue::Sum { adds } => format!("sum, {} tables, adds: {adds}", op.tables),
        }),
        Op::AddRmsNorm(_) | Op::CachedAttention(_) | Op::TopKSoftmax(_) => {
            Some(node.op.name().to_owned())
        }
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
