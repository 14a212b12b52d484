//! Products that a launch does together, with what is done to their results, give what each
//! operation gives alone.

mod running;

use running::{run, run_apart};
use rustorch_cpu::Cpu;
use rustorch_ir::ops::{Activation, ActivationKind, BinaryOp, Linear, RmsNorm};
use rustorch_ir::{BlockFormat, DType, Graph, Param, TensorType, ValueId};
use rustorch_runtime::merge::{CachedAttention, Merge, Then, Work};
use rustorch_runtime::{Step, lower};

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

    /// What a decoder's layer is made of, but for its attention: what that reads are outputs, what
    /// it gives is an input.
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

#[test]
fn merged_on_the_cpu_is_as_alone() {
    for t in [1, 2, 3, 4, 5] {
        for bias in [false, true] {
            let layer = Layer::decoder(t, bias);
            let inputs: Vec<&[u8]> = layer.inputs.iter().map(Vec::as_slice).collect();
            for threads in [1, 3] {
                let cpu = Cpu::new(threads);
                let merged = run(&cpu, &layer.graph, &inputs);
                let alone = run_apart(&cpu, &layer.graph, &layer.inputs);
                assert!(merged == alone, "{t} rows, bias: {bias}, {threads} threads");
            }
        }
    }
}

/// Merges whatever it can.
struct Everything;

impl Merge for Everything {
    fn product(&self, _: &Step) -> bool {
        true
    }

    fn norms(&self) -> bool {
        false
    }

    fn joins(&self, _: [&Step; 2]) -> bool {
        true
    }

    fn attends(&self, _: &CachedAttention) -> bool {
        false
    }
}

#[test]
fn a_decoder_layer_is_four_loops() {
    let layer = Layer::decoder(1, true);
    let lowered = lower(&layer.graph, &Cpu::new(1)).unwrap();
    let windows = lowered.windows();
    let launches = windows.flat_map(|(_, window)| window.launches(&Everything));
    let products: Vec<_> = launches
        .filter_map(|launch| match launch.work {
            Work::Products(products) => {
                let then = match products.then {
                    Then::Nothing => "",
                    Then::Add { .. } => "add",
                    Then::SwiGlu { .. } => "swiglu",
                };
                Some((products.each.len(), then))
            }
            _ => None,
        })
        .collect();
    assert_eq!(products, [(3, ""), (1, "add"), (2, "swiglu"), (1, "add")]);
}
