//! Whole networks as programs: convolutional ones and an encoder, with random weights.

use std::sync::Arc;
use std::time::Duration;

use rustorch_conformance::Extent;
use rustorch_coreml::cache::Cache;
use rustorch_coreml::{CoreMl, Options, Precision, Settings};
use rustorch_coreml_emulator::{Call, Emulated};
use rustorch_cpu::Cpu;
use rustorch_ir::ops::{
    Activation, ActivationKind, Attention, BatchNorm, Binary, BinaryOp, Conv2d, Embedding, Full,
    LayerNorm, Linear, Permute, Pool2d, PoolKind, Reduce, ReduceOp, Reshape, Slice, Unary, UnaryOp,
    philox,
};
use rustorch_ir::{DType, Graph, Op, Shape, TensorType, ValueId};
use rustorch_runtime::{Backend, Deadline, DeviceType, HostBuffer, Routing, Runtime, Storage};

/// A network that is being made.
#[derive(Default)]
struct Network {
    values: Vec<(TensorType, Source)>,
    outputs: Vec<usize>,
    drawn: u64,
}

/// Origin of a value.
enum Source {
    Operand(Storage),
    Node(Op, Vec<usize>),
}

impl Network {
    /// The network as a graph, whose inputs come before all else, and its operands.
    fn graph(&self) -> (Graph, Vec<Storage>) {
        let (mut graph, mut operands) = (Graph::new(), Vec::new());
        let mut ids = vec![ValueId(0); self.values.len()];
        for (id, (ty, source)) in ids.iter_mut().zip(&self.values) {
            if let Source::Operand(storage) = source {
                *id = graph.input(ty.clone()).unwrap();
                operands.push(storage.clone());
            }
        }
        for (at, (_, source)) in self.values.iter().enumerate() {
            if let Source::Node(op, inputs) = source {
                let inputs: Vec<ValueId> = inputs.iter().map(|&i| ids[i]).collect();
                ids[at] = graph.push(op.clone(), &inputs).unwrap();
            }
        }
        self.outputs.iter().for_each(|&at| graph.output(ids[at]));
        (graph, operands)
    }

    fn push(&mut self, op: impl Into<Op>, inputs: &[usize]) -> usize {
        let op = op.into();
        let types: Vec<&TensorType> = inputs.iter().map(|&i| &self.values[i].0).collect();
        let result = op.infer(&types).unwrap().remove(0);
        let source = Source::Node(op, inputs.to_vec());
        self.values.push((result, source));
        self.values.len() - 1
    }

    fn binary(&mut self, op: BinaryOp, a: usize, b: usize) -> usize {
        self.push(Binary { op }, &[a, b])
    }

    fn reshape(&mut self, x: usize, shape: &[usize]) -> usize {
        let shape = shape.into();
        self.push(Reshape { shape }, &[x])
    }

    /// A number.
    fn number(&mut self, x: f64) -> usize {
        let (shape, value, dtype) = (Shape::default(), x.into(), DType::F32);
        let full = Full {
            shape,
            value,
            dtype,
        };
        self.push(full, &[])
    }

    /// Numbers from −1 to 1.
    fn draw(&mut self, count: usize) -> Vec<f32> {
        self.drawn += 1;
        let number = |i: usize| {
            let word = philox(i as u64 / 4, self.drawn)[i % 4];
            word as f32 / 2_f32.powi(31) - 1.0
        };
        (0..count).map(number).collect()
    }

    fn operand(&mut self, ty: TensorType, bytes: Vec<u8>, is_weight: bool) -> usize {
        let storage = Storage::from_host(match is_weight {
            true => HostBuffer::borrowed(bytes),
            false => HostBuffer::copy_of(&bytes).unwrap(),
        });
        self.values.push((ty, Source::Operand(storage)));
        self.values.len() - 1
    }

    fn floats(&mut self, shape: &[usize], x: &[f32], is_weight: bool) -> usize {
        let bytes = x.iter().flat_map(|x| x.to_ne_bytes()).collect();
        self.operand(TensorType::new(shape, DType::F32), bytes, is_weight)
    }

    /// An input.
    fn input(&mut self, shape: &[usize]) -> usize {
        let x = self.draw(shape.iter().product());
        self.floats(shape, &x, false)
    }

    /// Weights in the middle of which is `middle`.
    fn weight(&mut self, shape: &[usize], middle: f32, scale: f32) -> usize {
        let x = self.draw(shape.iter().product());
        let x: Vec<f32> = x.into_iter().map(|x| middle + scale * x).collect();
        self.floats(shape, &x, true)
    }

    /// Weights that keep the size of what they are multiplied with (He et al.,
    /// <https://arxiv.org/abs/1502.01852>).
    fn matrix(&mut self, shape: &[usize]) -> usize {
        let inner: usize = shape[1..].iter().product();
        self.weight(shape, 0.0, (6.0 / inner as f32).sqrt())
    }

    fn shape(&self, x: usize) -> Shape {
        self.values[x].0.shape.clone()
    }

    fn activation(&mut self, kind: ActivationKind, x: usize) -> usize {
        self.push(Activation { kind }, &[x])
    }

    /// A convolution that keeps sizes but for the stride, and its batch norm.
    fn conv(&mut self, x: usize, out: usize, kernel: usize, [stride, groups]: [usize; 2]) -> usize {
        let channels = self.shape(x)[1];
        let weight = self.matrix(&[out, channels / groups, kernel, kernel]);
        let conv = Conv2d {
            stride: [stride; 2],
            padding: [kernel / 2; 2],
            groups,
            ..Conv2d::default()
        };
        let y = self.push(conv, &[x, weight]);
        let parts = [(0.0, 0.1), (1.0, 0.2), (0.7, 0.2), (0.0, 0.1)];
        let [mean, variance, gamma, beta] =
            parts.map(|(middle, scale)| self.weight(&[out], middle, scale));
        let eps = 1e-5.into();
        self.push(BatchNorm { eps }, &[y, mean, variance, gamma, beta])
    }

    fn linear(&mut self, x: usize, out: usize) -> usize {
        let inner = *self.shape(x).last().unwrap();
        let weight = self.weight(&[out, inner], 0.0, (3.0 / inner as f32).sqrt());
        let bias = self.weight(&[out], 0.0, 0.1);
        self.push(Linear, &[x, weight, bias])
    }

    /// The mean of each channel, and what it is classified as.
    fn classify(&mut self, x: usize) -> usize {
        let [n, channels, h, w] = [0, 1, 2, 3].map(|d| self.shape(x)[d]);
        let sum = Reduce {
            op: ReduceOp::Sum,
            dims: [2, 3].into_iter().collect(),
            keepdim: true,
        };
        let x = self.push(sum, &[x]);
        let count = self.number((h * w) as f64);
        let x = self.binary(BinaryOp::Div, x, count);
        let x = self.reshape(x, &[n, channels]);
        self.linear(x, 1000)
    }
}

/// ResNet-50 (He et al., <https://arxiv.org/abs/1512.03385>, as in torchvision: the stride is in the
/// 3 × 3 convolution).
fn resnet50(size: usize) -> Network {
    let relu = ActivationKind::Relu;
    let mut net = Network::default();
    let x = net.input(&[1, 3, size, size]);
    let x = net.conv(x, 64, 7, [2, 1]);
    let x = net.activation(relu, x);
    let pool = Pool2d {
        kind: PoolKind::Max,
        kernel: [3; 2],
        stride: [2; 2],
        padding: [1; 2],
        dilation: [1; 2],
        indices: None,
    };
    let mut x = net.push(pool, &[x]);
    for (stage, blocks) in [3, 4, 6, 3].into_iter().enumerate() {
        let width = 64 << stage;
        for block in 0..blocks {
            let stride = if block == 0 && stage > 0 { 2 } else { 1 };
            let shortcut = match block {
                0 => net.conv(x, 4 * width, 1, [stride, 1]),
                _ => x,
            };
            let y = net.conv(x, width, 1, [1, 1]);
            let y = net.activation(relu, y);
            let y = net.conv(y, width, 3, [stride, 1]);
            let y = net.activation(relu, y);
            let y = net.conv(y, 4 * width, 1, [1, 1]);
            let y = net.binary(BinaryOp::Add, y, shortcut);
            x = net.activation(relu, y);
        }
    }
    let y = net.classify(x);
    net.outputs.push(y);
    net
}

/// MobileNetV2 (Sandler et al., <https://arxiv.org/abs/1801.04381>).
fn mobilenet_v2(size: usize) -> Network {
    let mut net = Network::default();
    let relu6 = |net: &mut Network, x: usize| {
        let [zero, six] = [0.0, 6.0].map(|x| net.number(x));
        let x = net.binary(BinaryOp::Maximum, x, zero);
        net.binary(BinaryOp::Minimum, x, six)
    };
    let x = net.input(&[1, 3, size, size]);
    let x = net.conv(x, 32, 3, [2, 1]);
    let mut x = relu6(&mut net, x);
    for (expansion, out, blocks, first) in [
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ] {
        for block in 0..blocks {
            let stride = if block == 0 { first } else { 1 };
            let channels = net.shape(x)[1];
            let hidden = channels * expansion;
            let mut y = x;
            if expansion > 1 {
                y = net.conv(y, hidden, 1, [1, 1]);
                y = relu6(&mut net, y);
            }
            y = net.conv(y, hidden, 3, [stride, hidden]);
            y = relu6(&mut net, y);
            y = net.conv(y, out, 1, [1, 1]);
            if stride == 1 && channels == out {
                y = net.binary(BinaryOp::Add, x, y);
            }
            x = y;
        }
    }
    let x = net.conv(x, 1280, 1, [1, 1]);
    let x = relu6(&mut net, x);
    let y = net.classify(x);
    net.outputs.push(y);
    net
}

/// An encoder as BERT is one (Devlin et al., <https://arxiv.org/abs/1810.04805>), of the size that is
/// called mini: 4 layers of 256 features in 4 heads; with padding that is masked.
fn encoder() -> Network {
    const VOCABULARY: usize = 1000;
    let (batch, t, width, heads) = (2, 24, 256, 4);
    let mut net = Network::default();
    let norm = |net: &mut Network, x: usize| {
        let (gamma, beta) = (
            net.weight(&[width], 1.0, 0.2),
            net.weight(&[width], 0.0, 0.1),
        );
        let (dims, eps) = (1, 1e-12.into());
        net.push(LayerNorm { dims, eps }, &[x, gamma, beta])
    };
    let places = |net: &mut Network, place: &dyn Fn(usize) -> i64| {
        let bytes = (0..batch * t)
            .flat_map(|i| place(i).to_ne_bytes())
            .collect();
        net.operand(TensorType::new([batch, t], DType::I64), bytes, false)
    };
    let embed = |net: &mut Network, rows: usize, ids: usize| {
        let table = net.weight(&[rows, width], 0.0, 1.0);
        let dtype = DType::F32;
        net.push(Embedding { dtype }, &[table, ids])
    };
    let ids = places(&mut net, &|i| (i * 37 % VOCABULARY) as i64);
    let positions = places(&mut net, &|i| (i % t) as i64);
    let kinds = places(&mut net, &|i| (i % t / 12) as i64);
    let mask: Vec<f32> = (0..batch * t)
        .map(|i| if i >= batch * t - 5 { -1e4 } else { 0.0 })
        .collect();
    let mask = net.floats(&[batch, 1, 1, t], &mask, false);
    let [x, places, kinds] = [(VOCABULARY, ids), (512, positions), (2, kinds)]
        .map(|(rows, ids)| embed(&mut net, rows, ids));
    let x = net.binary(BinaryOp::Add, x, places);
    let x = net.binary(BinaryOp::Add, x, kinds);
    let mut x = norm(&mut net, x);
    let attention = Attention {
        scale: (1.0 / f64::from(width as u32 / heads as u32).sqrt()).into(),
        causal: false,
        soft_cap: None,
        mask: true,
        past: false,
        window: None,
        log_sum_exp: false,
    };
    let turned = |net: &mut Network, x: usize| {
        let dims = [0, 2, 1, 3].into_iter().collect();
        net.push(Permute { dims }, &[x])
    };
    for _ in 0..4 {
        let split = |net: &mut Network, x: usize| {
            let x = net.linear(x, width);
            let x = net.reshape(x, &[batch, t, heads, width / heads]);
            turned(net, x)
        };
        let [q, k, v] = [0, 1, 2].map(|_| split(&mut net, x));
        let y = net.push(attention.clone(), &[q, k, v, mask]);
        let y = turned(&mut net, y);
        let y = net.reshape(y, &[batch, t, width]);
        let y = net.linear(y, width);
        let y = net.binary(BinaryOp::Add, x, y);
        let y = norm(&mut net, y);
        let hidden = net.linear(y, 4 * width);
        let hidden = net.activation(ActivationKind::Gelu, hidden);
        let hidden = net.linear(hidden, width);
        let hidden = net.binary(BinaryOp::Add, y, hidden);
        x = norm(&mut net, hidden);
    }
    let (dim, start, end, step) = (1, 0, 1, 1);
    let first = Slice {
        dim,
        start,
        end,
        step,
    };
    let first = net.push(first, &[x]);
    let first = net.reshape(first, &[batch, width]);
    let pooled = net.linear(first, width);
    let pooled = net.push(Unary { op: UnaryOp::Tanh }, &[pooled]);
    net.outputs = vec![x, pooled];
    net
}

const COREML: DeviceType = DeviceType::CoreML(0);

fn outputs(runtime: &Runtime, net: &Network, device: DeviceType) -> Vec<Vec<f64>> {
    let routing = Routing {
        device,
        ..Routing::AUTO
    };
    let (graph, operands) = net.graph();
    let outputs = runtime.prepare(graph, routing).run(&operands).unwrap();
    let read = |storage: &Storage| {
        let mut bytes = vec![0; storage.bytes()];
        runtime.read(storage, 0, &mut bytes).unwrap();
        let x = bytes.as_chunks().0.iter().map(|&x| f32::from_ne_bytes(x));
        x.map(f64::from).collect()
    };
    outputs.iter().map(read).collect()
}

/// The network is one program, on every system, and gives what the processor gives: the sum of the
/// squared differences is at most a part of that of the squares.
fn is_one_program(net: &Network) {
    let cpu = || -> Arc<dyn Backend> { Arc::new(Cpu::new(1)) };
    let expected = outputs(&Runtime::new([cpu()]), net, DeviceType::Cpu);
    for (macos, precision, allowed) in [
        (12, Precision::F32, 1e-10),
        (15, Precision::F32, 1e-10),
        (14, Precision::F16, 5e-5),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings {
            options: Options {
                precision,
                ..Options::default()
            },
            deadline: Deadline::after(Duration::from_secs(600)),
            ..Settings::new(Cache::new(folder.path(), 1 << 30))
        };
        let coreml = Arc::new(CoreMl::new(Emulated::new(macos), 0, settings).unwrap());
        let runtime = Runtime::new([coreml.clone() as Arc<dyn Backend>, cpu()]);
        let results = outputs(&runtime, net, COREML);
        let used: Vec<DeviceType> = runtime.used_devices().iter().map(|used| used.0).collect();
        assert_eq!(used, [COREML], "{:?}", runtime.fallbacks());
        let calls = [Call::Compile, Call::Predict].map(|call| coreml.api().calls(call));
        assert_eq!(calls, [1, 1], "macOS {macos}");
        for (result, expected) in results.iter().zip(&expected) {
            let pairs = result.iter().zip(expected);
            let differences: f64 = pairs.map(|(a, b)| (a - b).powi(2)).sum();
            let squares: f64 = expected.iter().map(|b| b * b).sum();
            let error = differences / squares;
            println!("macOS {macos}, {precision}: {error:.1e}");
            assert!(
                error <= allowed,
                "{error:e} on macOS {macos} in {precision}"
            );
        }
    }
}

/// Width and height of images.
fn size() -> usize {
    match Extent::of_tests() {
        Extent::Full => 64,
        Extent::Sample(_) => 32,
    }
}

#[test]
fn resnet_50_is_one_program() {
    is_one_program(&resnet50(size()));
}

#[test]
fn mobilenet_v2_is_one_program() {
    is_one_program(&mobilenet_v2(size()));
}

#[test]
fn an_encoder_is_one_program() {
    is_one_program(&encoder());
}
