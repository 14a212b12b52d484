//! Intermediate values of networks take little more memory than what is alive at one time.

use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::Arc;

use rustorch_cpu::Cpu;
use rustorch_gpu::Gpu;
use rustorch_ir::ops::{
    Activation, ActivationKind, Attention, BatchNorm, Conv2d, LayerNorm, Linear, Pool2d, PoolKind,
};
use rustorch_ir::{DType, Graph, Param, TensorType, ValueId};
use rustorch_opencl::OpenCl;
use rustorch_runtime::{Backend, Kernels, Lowered, Place, Routing, Runtime, Slot, lower};
use rustorch_testing::{Suite, always, tests};

/// A network in the making. Its weights are inputs, one for each shape.
struct Network {
    graph: Graph,
    weights: HashMap<Vec<usize>, ValueId>,
    /// Are the shapes of weights still to be found out?
    is_draft: bool,
}

impl Network {
    /// The graph that `build` makes of an input.
    fn graph(x: &[usize], build: impl Fn(&mut Self, ValueId) -> ValueId) -> Graph {
        let input = |graph: &mut Graph, shape: &[usize]| {
            let ty = TensorType::new(shape, DType::F32);
            graph.input(ty).unwrap()
        };
        let mut draft = Self {
            graph: Graph::new(),
            weights: HashMap::new(),
            is_draft: true,
        };
        let value = input(&mut draft.graph, x);
        build(&mut draft, value);
        let mut network = Self {
            graph: Graph::new(),
            weights: HashMap::new(),
            is_draft: false,
        };
        let value = input(&mut network.graph, x);
        for shape in draft.weights.into_keys() {
            let weight = input(&mut network.graph, &shape);
            network.weights.insert(shape, weight);
        }
        let y = build(&mut network, value);
        network.graph.output(y);
        network.graph
    }

    fn weight(&mut self, shape: &[usize]) -> ValueId {
        if let (false, Some(&weight)) = (self.is_draft, self.weights.get(shape)) {
            return weight;
        }
        let weight = self.graph.full(shape.into(), 0, DType::F32).unwrap();
        self.weights.insert(shape.to_vec(), weight);
        weight
    }

    fn linear(&mut self, x: ValueId, [n, k]: [usize; 2]) -> ValueId {
        let operands = [x, self.weight(&[n, k]), self.weight(&[n])];
        self.graph.push(Linear, &operands).unwrap()
    }

    fn layer_norm(&mut self, x: ValueId, width: usize) -> ValueId {
        let norm = LayerNorm {
            dims: 1,
            eps: Param(1e-5),
        };
        let operands = [x, self.weight(&[width]), self.weight(&[width])];
        self.graph.push(norm, &operands).unwrap()
    }

    fn activation(&mut self, kind: ActivationKind, x: ValueId) -> ValueId {
        self.graph.push(Activation { kind }, &[x]).unwrap()
    }

    /// A convolution and the norm of its channels.
    fn conv(&mut self, x: ValueId, [o, i, size]: [usize; 3], stride: usize) -> ValueId {
        let conv = Conv2d {
            stride: [stride; 2],
            padding: [size / 2; 2],
            ..Conv2d::default()
        };
        let weight = self.weight(&[o, i, size, size]);
        let y = self.graph.push(conv, &[x, weight]).unwrap();
        let channel = self.weight(&[o]);
        let norm = BatchNorm { eps: Param(1e-5) };
        self.graph
            .push(norm, &[y, channel, channel, channel, channel])
            .unwrap()
    }
}

/// Layers of GPT-2 on so many tokens of `width`.
fn gpt2(layers: usize, tokens: usize, width: usize) -> Graph {
    let (heads, each) = (width / 64, 64);
    Network::graph(&[tokens, width], |n, mut x| {
        for _ in 0..layers {
            let y = n.layer_norm(x, width);
            let qkv = n.linear(y, [3 * width, width]);
            let [q, k, v] = [0, 1, 2].map(|i| {
                let part = n.graph.slice(qkv, 1, i * width, (i + 1) * width).unwrap();
                let part = n.graph.reshape(part, [tokens, heads, each]).unwrap();
                n.graph.permute(part, &[1, 0, 2]).unwrap()
            });
            let attention = Attention {
                scale: 0.125.into(),
                causal: true,
                soft_cap: None,
                mask: false,
                past: false,
                window: None,
                log_sum_exp: false,
            };
            let y = n.graph.push(attention, &[q, k, v]).unwrap();
            let y = n.graph.permute(y, &[1, 0, 2]).unwrap();
            let y = n.graph.reshape(y, [tokens, width]).unwrap();
            let y = n.linear(y, [width, width]);
            x = n.graph.add(x, y).unwrap();
            let y = n.layer_norm(x, width);
            let y = n.linear(y, [4 * width, width]);
            let y = n.activation(ActivationKind::GeluTanh, y);
            let y = n.linear(y, [width, 4 * width]);
            x = n.graph.add(x, y).unwrap();
        }
        x
    })
}

/// ResNet-50 up to its classes.
fn resnet50() -> Graph {
    Network::graph(&[1, 3, 224, 224], |n, x| {
        let x = n.conv(x, [64, 3, 7], 2);
        let x = n.activation(ActivationKind::Relu, x);
        let pool = Pool2d {
            kind: PoolKind::Max,
            kernel: [3; 2],
            stride: [2; 2],
            padding: [1; 2],
            dilation: [1; 2],
            indices: None,
        };
        let mut x = n.graph.push(pool, &[x]).unwrap();
        let mut channels = 64;
        for (stage, blocks) in [3, 4, 6, 3].into_iter().enumerate() {
            let width = 64 << stage;
            for block in 0..blocks {
                let stride = if block == 0 && stage > 0 { 2 } else { 1 };
                let y = n.conv(x, [width, channels, 1], 1);
                let y = n.activation(ActivationKind::Relu, y);
                let y = n.conv(y, [width, width, 3], stride);
                let y = n.activation(ActivationKind::Relu, y);
                let y = n.conv(y, [4 * width, width, 1], 1);
                if block == 0 {
                    x = n.conv(x, [4 * width, channels, 1], stride);
                    channels = 4 * width;
                }
                x = n.graph.add(x, y).unwrap();
                x = n.activation(ActivationKind::Relu, x);
            }
        }
        let x = n.graph.reshape(x, [1, 2048, 49]).unwrap();
        let x = n.graph.mean(x, 2).unwrap();
        let x = n.graph.reshape(x, [1, 2048]).unwrap();
        n.linear(x, [1000, 2048])
    })
}

/// The largest sum of intermediate values that are alive at one time.
fn most_alive(lowered: &Lowered) -> usize {
    let arena = |place: &Place| match place.slot {
        Slot::Arena { buffer, at } => Some((buffer, at)),
        Slot::Input(_) | Slot::Output(_) => None,
    };
    // A place holds the last value that was written there.
    let mut current: HashMap<(usize, usize), usize> = HashMap::new();
    let mut values: Vec<(usize, usize, usize)> = Vec::new();
    for (at, step) in lowered.steps.iter().enumerate() {
        for value in step.inputs.iter().filter_map(arena) {
            values[current[&value]].2 = at;
        }
        for place in &step.outputs {
            if let Some(value) = arena(place) {
                current.insert(value, values.len());
                values.push((place.ty.bytes(), at, at));
            }
        }
    }
    let alive = |at: usize| {
        let alive = values
            .iter()
            .filter(|(_, first, last)| (*first..=*last).contains(&at));
        alive.map(|(bytes, ..)| bytes.next_multiple_of(64)).sum()
    };
    (0..lowered.steps.len()).map(alive).max().unwrap_or(0)
}

fn check<D: Backend + Kernels + 'static>(name: &str, graph: &Graph, device: &Arc<D>) {
    let runtime = Runtime::new([device.clone() as Arc<dyn Backend>]);
    let executable = runtime.prepare(graph.clone(), Routing::AUTO);
    let (planned, _) = executable.placement().unwrap();
    let lowered = lower(&planned, &**device).unwrap();
    let (arena, bound) = (lowered.arena_bytes(), most_alive(&lowered));
    let device = device.info().device;
    println!("{name} on {device}: {arena} bytes, {bound} alive at once");
    assert!(
        arena as f64 <= 1.1 * bound as f64,
        "{name} on {device}: {arena} for {bound}"
    );
    // The sum of all would be many times as much.
    let sum: usize = lowered
        .steps
        .iter()
        .map(|step| step.output().ty.bytes())
        .sum();
    assert!(arena < sum / 4, "{name} on {device}: {arena} of {sum}");
}

fn networks() -> [(&'static str, Graph); 3] {
    [
        ("24 layers of GPT-2 on 128 tokens", gpt2(24, 128, 1024)),
        ("24 layers of GPT-2 on one token", gpt2(24, 1, 1024)),
        ("ResNet-50", resnet50()),
    ]
}

fn networks_take_what_is_alive() {
    for (name, graph) in networks() {
        check(name, &graph, &Arc::new(Cpu::new(2)));
    }
}

fn networks_take_what_is_alive_on_opencl(opencl: &Vec<Arc<Gpu<OpenCl>>>) {
    for (name, graph) in networks() {
        for device in opencl {
            check(name, &graph, device);
        }
    }
}

fn main() -> ExitCode {
    let devices = rustorch_opencl::devices();
    let devices = devices.map(|all| all.into_iter().map(|d| Arc::new(Gpu::new(d))).collect());
    let opencl = tests![networks_take_what_is_alive_on_opencl];
    Suite::new()
        .always(always![networks_take_what_is_alive])
        .on(devices, "RUSTORCH_TEST_OPENCL", opencl)
        .run()
}
