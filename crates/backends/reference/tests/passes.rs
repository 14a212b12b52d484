//! Passes and rules of fusion change graphs and not their results: random graphs give the same before and after.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustorch_ir::autodiff::backward;
use rustorch_ir::ops::{
    Activation, ActivationKind, Assign, Attention, BatchNormTrain, BinaryOp, Concat, Conv2d,
    CrossEntropy, CrossEntropyMean, ExpertLinear, LayerNorm, Linear, Reduce, ReduceOp, RmsNorm,
    Rope, RopeLayout, RopeScaling, Softmax, TopK, UnaryOp, UpdateSlice, philox,
};
use rustorch_ir::passes::{
    ChannelsLastImages, Chunks, Conversion, Decomposition, Fusion, LateUpdates, OneDevice, Pass,
    RULES, Recomputation, Repeats, Rewritten, Saving, peak, planned,
};
use rustorch_ir::{DType, DeviceType, Graph, OpError, Param, TensorType, ValueId, check};
use rustorch_reference::Reference;
use rustorch_runtime::{Backend, DeviceBuffer, NoProbe};

/// Enough for chunks of rows to be worth it.
const ROWS: usize = 24;
const WIDTH: usize = 8;
const EXPERTS: usize = 5;
/// Number of random graphs.
const GRAPHS: u64 = 60;

/// Random numbers that are the same in every run.
struct Random {
    seed: u64,
    drawn: u64,
}

impl Random {
    fn below(&mut self, end: usize) -> usize {
        let [bits, ..] = philox(self.drawn, self.seed);
        self.drawn += 1;
        bits as usize % end
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}

type Value = Result<ValueId, OpError>;

/// A graph in the making, and the bytes of its inputs.
struct Program {
    graph: Graph,
    inputs: Vec<Vec<u8>>,
    random: Random,
    /// Values `[ROWS, WIDTH]` that blocks read.
    rows: Vec<ValueId>,
    weights: [ValueId; 4],
    router: ValueId,
    /// Weights of all experts: gate, up and down.
    experts: [ValueId; 3],
    bias: ValueId,
    class: ValueId,
    image: ValueId,
    kernel: ValueId,
    channels: [ValueId; 2],
    heads: [ValueId; 3],
    caches: [ValueId; 2],
    places: [ValueId; 2],
    rate: ValueId,
    /// Parameters, each with its gradient.
    parameters: [[ValueId; 2]; 3],
    /// The end of the part whose values gradients read.
    loss: Option<ValueId>,
}

impl Program {
    fn new(seed: u64) -> Result<Self, OpError> {
        let (mut graph, mut random) = (Graph::new(), Random { seed, drawn: 0 });
        let mut inputs = Vec::new();
        let mut input = |shape: &[usize], dtype: DType| {
            let ty = TensorType::new(shape, dtype);
            let number = |below: usize| random.below(below);
            inputs.push(bytes(&ty, number));
            graph.input(ty)
        };
        let f32 = DType::F32;
        let rows = vec![
            input(&[ROWS, WIDTH], f32)?,
            input(&[ROWS, WIDTH], f32)?,
            input(&[ROWS, WIDTH], f32)?,
        ];
        let square = [WIDTH, WIDTH];
        let weights = [
            input(&square, f32)?,
            input(&square, f32)?,
            input(&square, f32)?,
            input(&square, f32)?,
        ];
        let router = input(&[EXPERTS, WIDTH], f32)?;
        let of_experts = [EXPERTS, WIDTH, WIDTH];
        let experts = [
            input(&of_experts, f32)?,
            input(&of_experts, f32)?,
            input(&of_experts, f32)?,
        ];
        let bias = input(&[WIDTH], f32)?;
        let class = input(&[ROWS], DType::I64)?;
        let image = input(&[2, 4, 4, 4], f32)?;
        let kernel = input(&[4, 4, 1, 1], f32)?;
        let channels = [input(&[4], f32)?, input(&[4], f32)?];
        let heads = [
            input(&[2, 1, 8], f32)?,
            input(&[1, 1, 8], f32)?,
            input(&[1, 1, 8], f32)?,
        ];
        let caches = [
            input(&[1, 10, 8], DType::BF16)?,
            input(&[1, 10, 8], DType::BF16)?,
        ];
        let places = [input(&[1], DType::I32)?, input(&[1], DType::I32)?];
        let rate = input(&[], f32)?;
        let parameters = [
            [input(&square, f32)?, input(&square, f32)?],
            [input(&[WIDTH], f32)?, input(&[WIDTH], f32)?],
            [input(&[3, 5], f32)?, input(&[3, 5], f32)?],
        ];
        Ok(Self {
            graph,
            inputs,
            random,
            rows,
            weights,
            router,
            experts,
            bias,
            class,
            image,
            kernel,
            channels,
            heads,
            caches,
            places,
            rate,
            parameters,
            loss: None,
        })
    }

    fn coin(&mut self) -> bool {
        self.random.below(2) == 0
    }

    fn row(&mut self) -> ValueId {
        self.random.pick(&self.rows)
    }

    fn elementwise(&mut self) -> Value {
        let (a, b) = (self.row(), self.row());
        let op = self
            .random
            .pick(&[BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul]);
        let both = self.graph.binary(op, a, b)?;
        self.graph.unary(UnaryOp::Tanh, both)
    }

    /// A norm, with a residual before it and conversions around it.
    fn norm(&mut self) -> Value {
        let mut x = self.row();
        if self.coin() {
            let mut other = self.row();
            if self.coin() {
                let half = self.graph.cast(other, DType::BF16)?;
                other = self.graph.cast(half, DType::F32)?;
            }
            x = self.graph.add(x, other)?;
            self.rows.push(x);
        }
        let eps = Param(1e-5);
        let norm = match self.coin() {
            true => self.graph.push(RmsNorm { eps }, &[x, self.bias])?,
            false => self.graph.push(LayerNorm { dims: 1, eps }, &[x])?,
        };
        if self.coin() {
            return Ok(norm);
        }
        let half = self.graph.cast(norm, DType::BF16)?;
        self.graph.cast(half, DType::F32)
    }

    /// Products of the same rows, with a gate or a residual behind them.
    fn products(&mut self) -> Value {
        let x = match self.coin() {
            true => self.norm()?,
            false => self.row(),
        };
        let [a, b] = [0, 1].map(|_| self.random.pick(&self.weights));
        let a = match self.coin() {
            true => self.graph.push(Linear, &[x, a, self.bias])?,
            false => self.graph.push(Linear, &[x, a])?,
        };
        let y = match self.coin() {
            true => {
                let b = self.graph.push(Linear, &[x, b])?;
                let kind = ActivationKind::Silu;
                let gate = self.graph.push(Activation { kind }, &[a])?;
                self.graph.mul(gate, b)?
            }
            false => {
                let other = self.row();
                self.graph.add(a, other)?
            }
        };
        self.graph.unary(UnaryOp::Tanh, y)
    }

    /// A mixture of experts with its residual.
    fn mixture(&mut self) -> Value {
        const USED: usize = 2;
        let x = self.row();
        let [gate, up, down] = self.experts;
        let g = &mut self.graph;
        let logits = g.push(Linear, &[x, self.router])?;
        let (k, dim, largest) = (USED, 1, true);
        let best = g.push(TopK { k, dim, largest }, &[logits])?;
        let ids = g.results(best)[1];
        let weights = g.push(Softmax { dim, log: false }, &[best])?;
        let weights = g.reshape(weights, [ROWS, USED, 1])?;
        let rows = g.reshape(x, [ROWS, 1, WIDTH])?;
        let gate = g.push(ExpertLinear, &[rows, gate, ids])?;
        let up = g.push(ExpertLinear, &[rows, up, ids])?;
        let kind = ActivationKind::Silu;
        let gate = g.push(Activation { kind }, &[gate])?;
        let y = g.mul(gate, up)?;
        let y = g.unary(UnaryOp::Tanh, y)?;
        let y = g.push(ExpertLinear, &[y, down, ids])?;
        let y = g.mul(y, weights)?;
        let (op, dims, keepdim) = (ReduceOp::Sum, [1].into_iter().collect(), false);
        let y = g.push(Reduce { op, dims, keepdim }, &[y])?;
        let y = g.add(x, y)?;
        g.unary(UnaryOp::Tanh, y)
    }

    /// The mean of the rows' losses, or each alone with its gradient.
    fn loss(&mut self) -> Result<(), OpError> {
        let start = self.graph.nodes().len();
        let (x, w) = (self.products()?, self.random.pick(&self.weights));
        let logits = self.graph.push(Linear, &[x, w])?;
        let loss = CrossEntropy {
            dim: 1,
            ignore_index: -100,
        };
        let is_mean = self.coin();
        let (loss, shape): (_, &[usize]) = match is_mean {
            true => {
                let mean = CrossEntropyMean { loss };
                (self.graph.push(mean, &[logits, self.class])?, &[])
            }
            false => (self.graph.push(loss, &[logits, self.class])?, &[ROWS]),
        };
        let one = self.graph.full(shape.into(), 1.0, DType::F32)?;
        let nodes = start..self.graph.nodes().len();
        let wanted = [w, self.rows[0], self.rows[1], self.rows[2]];
        let found = backward(&mut self.graph, nodes, &[(loss, one)], &wanted)?;
        self.graph.output(loss);
        self.loss = Some(loss);
        for gradient in found.into_iter().flatten() {
            self.graph.output(gradient);
        }
        Ok(())
    }

    /// Convolutions with norms of the batch, and their gradients.
    fn images(&mut self) -> Result<(), OpError> {
        let start = self.graph.nodes().len();
        let mut y = self
            .graph
            .push(Conv2d::default(), &[self.image, self.kernel])?;
        for _ in 0..1 + self.random.below(2) {
            let norm = BatchNormTrain {
                eps: Param(1e-5),
                adds: false,
                relu: false,
            };
            let [weight, bias] = self.channels;
            let mut normed = self.graph.push(norm, &[y, weight, bias])?;
            if self.coin() {
                normed = self.graph.add(normed, self.image)?;
            }
            if self.coin() {
                let kind = ActivationKind::Relu;
                normed = self.graph.push(Activation { kind }, &[normed])?;
            }
            y = self.graph.push(Conv2d::default(), &[normed, self.kernel])?;
        }
        let ct = self.graph.add(self.image, self.image)?;
        let nodes = start..self.graph.nodes().len() - 1;
        let wanted = [self.image, self.kernel, self.channels[0], self.channels[1]];
        let found = backward(&mut self.graph, nodes, &[(y, ct)], &wanted)?;
        self.graph.output(y);
        for gradient in found.into_iter().flatten() {
            self.graph.output(gradient);
        }
        Ok(())
    }

    /// A token's attention with its cache.
    fn attention(&mut self) -> Result<(), OpError> {
        let ([q, k, v], [keys, values], [positions, past]) = (self.heads, self.caches, self.places);
        let rope = Rope {
            dims: 8,
            layout: RopeLayout::Halves,
            base: 1e4.into(),
            scaling: RopeScaling::NONE,
        };
        let q = self.graph.push(rope.clone(), &[q, positions])?;
        let k = self.graph.push(rope, &[k, positions])?;
        let update = UpdateSlice { dim: 1 };
        let keys = self.graph.push(update.clone(), &[keys, k, past])?;
        let values = self.graph.push(update, &[values, v, past])?;
        let attention = Attention {
            scale: 0.4.into(),
            causal: true,
            soft_cap: None,
            mask: false,
            past: true,
            window: None,
            log_sum_exp: false,
        };
        let y = self.graph.push(attention, &[q, keys, values, past])?;
        for output in [y, keys, values] {
            self.graph.output(output);
        }
        Ok(())
    }

    /// A sum of padded parts.
    fn parts(&mut self) -> Value {
        let x = self.row();
        let (first, second) = (
            self.graph.slice(x, 1, 0, 3)?,
            self.graph.slice(x, 1, 3, WIDTH)?,
        );
        let first = self.graph.unary(UnaryOp::Neg, first)?;
        let second = self.graph.unary(UnaryOp::Tanh, second)?;
        let first = self.graph.pad(first, 1, 0, WIDTH - 3)?;
        let second = self.graph.pad(second, 1, 3, 0)?;
        self.graph.add(second, first)
    }

    /// The same conversion for two readers.
    fn conversions(&mut self) -> Value {
        let x = self.row();
        let [a, b] = [
            self.graph.cast(x, DType::BF16)?,
            self.graph.cast(x, DType::BF16)?,
        ];
        let product = self.graph.mul(a, b)?;
        self.graph.cast(product, DType::F32)
    }

    /// Parameters in another dtype, norms of all gradients, and an update by these.
    fn updates(&mut self) -> Result<(), OpError> {
        let mut halves = Vec::new();
        for [parameter, _] in self.parameters {
            let half = self.graph.cast(parameter, DType::BF16)?;
            halves.push(self.graph.reduce(ReduceOp::Max, half, 0)?);
        }
        let mut norms = Vec::new();
        for [_, gradient] in self.parameters {
            let square = self.graph.mul(gradient, gradient)?;
            let dims = (0..self.graph.ty(gradient).rank()).collect();
            let (op, keepdim) = (ReduceOp::Sum, false);
            let sum = self.graph.push(Reduce { op, dims, keepdim }, &[square])?;
            let norm = self.graph.unary(UnaryOp::Sqrt, sum)?;
            norms.push(self.graph.reshape(norm, [1])?);
        }
        let norms = self.graph.push(Concat { dim: 0 }, &norms)?;
        let most = self.graph.reduce(ReduceOp::Max, norms, 0)?;
        let rate = self.graph.div(self.rate, most)?;
        for [parameter, gradient] in self.parameters {
            let step = self.graph.mul(gradient, rate)?;
            let next = self.graph.sub(parameter, step)?;
            let next = self.graph.push(Assign, &[parameter, next])?;
            self.graph.output(next);
        }
        halves.into_iter().for_each(|half| self.graph.output(half));
        self.graph.output(most);
        Ok(())
    }

    /// Blocks in any order, the ones with gradients or states at most once.
    fn fill(mut self) -> Result<Self, OpError> {
        let mut once = [false; 4];
        for _ in 0..4 + self.random.below(8) {
            let choice = self.random.below(12);
            let row = match choice {
                0 | 1 => self.elementwise()?,
                2 | 3 => self.norm()?,
                4 | 5 => self.products()?,
                6 => self.parts()?,
                7 => self.conversions()?,
                _ => {
                    if !std::mem::replace(&mut once[choice - 8], true) {
                        match choice {
                            8 => self.loss()?,
                            9 => self.images()?,
                            10 => self.attention()?,
                            _ => self.updates()?,
                        }
                    }
                    continue;
                }
            };
            self.rows.push(row);
        }
        // Few others, so that most values are hidden.
        for _ in 0..2 {
            let row = self.row();
            self.graph.output(row);
        }
        let last = self.rows[self.rows.len() - 1];
        self.graph.output(last);
        if self.random.seed.is_multiple_of(4) {
            let row = self.mixture()?;
            self.graph.output(row);
        }
        Ok(self)
    }
}

/// Elements from −1 to 1; whole numbers from 0 to 5.
fn bytes(ty: &TensorType, mut below: impl FnMut(usize) -> usize) -> Vec<u8> {
    let elements = 0..ty.shape.elements();
    let mut float = || below(2001) as f32 / 1000.0 - 1.0;
    match ty.dtype {
        DType::F32 => elements.flat_map(|_| float().to_ne_bytes()).collect(),
        // The upper halves of floats.
        DType::BF16 => (elements.map(|_| (float().to_bits() >> 16) as u16))
            .flat_map(u16::to_ne_bytes)
            .collect(),
        DType::I32 => elements.flat_map(|_| 5_i32.to_ne_bytes()).collect(),
        _ => (elements.map(|i| (i % 5) as i64))
            .flat_map(i64::to_ne_bytes)
            .collect(),
    }
}

/// The outputs on the reference, with composites as their parts.
fn results(reference: &Reference, graph: &Graph, inputs: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let primitives = Decomposition.run(graph, &OneDevice(|s| reference.supports(s)));
    let primitives = primitives.expect("composites have parts");
    let primitives = primitives.map_or_else(|| graph.clone(), |rewritten| rewritten.graph);
    let buffer = |bytes| reference.memory().alloc(bytes).unwrap();
    let given = |bytes: &Vec<u8>| {
        let buffer = buffer(bytes.len());
        // SAFETY: nothing else knows the buffer.
        unsafe { buffer.write(0, bytes) }.unwrap();
        buffer
    };
    let inputs: Vec<Arc<dyn DeviceBuffer>> = inputs.iter().map(given).collect();
    let types = primitives.outputs().iter().map(|&v| primitives.ty(v));
    let outputs: Vec<Arc<dyn DeviceBuffer>> = types.map(|ty| buffer(ty.bytes())).collect();
    let program = reference.compile(&primitives).unwrap();
    program.run(&inputs, &outputs, &NoProbe).unwrap();
    let read = |buffer: &Arc<dyn DeviceBuffer>| {
        let mut bytes = vec![0; buffer.bytes()];
        // SAFETY: the run has ended.
        unsafe { buffer.read(0, &mut bytes) }.unwrap();
        bytes
    };
    outputs.iter().map(read).collect()
}

/// The largest difference of floats, in parts of the larger one or of 1.
fn difference(graph: &Graph, a: &[Vec<u8>], b: &[Vec<u8>]) -> f32 {
    let mut most = 0.0;
    for ((&output, a), b) in graph.outputs().iter().zip(a).zip(b) {
        let dtype = graph.ty(output).dtype;
        let floats = |bytes: &[u8]| -> Vec<f32> {
            match dtype {
                DType::F32 => (bytes.as_chunks::<4>().0.iter())
                    .map(|&bytes| f32::from_ne_bytes(bytes))
                    .collect(),
                _ => (bytes.as_chunks::<2>().0.iter())
                    .map(|&bytes| u32::from(u16::from_ne_bytes(bytes)) << 16)
                    .map(f32::from_bits)
                    .collect(),
            }
        };
        for (a, b) in floats(a).into_iter().zip(floats(b)) {
            assert!(a.is_finite() && b.is_finite(), "{a} and {b}");
            most = f32::max(most, (a - b).abs() / a.abs().max(b.abs()).max(1.0));
        }
    }
    most
}

/// Sums in another order differ by some roundings of single precision.
const ROUNDINGS: f32 = 1e-5;

/// Compares a graph after a pass with what it was.
fn compare(before: &Graph, after: &Rewritten, expected: &[Vec<u8>], inputs: &[Vec<u8>]) -> f32 {
    let types = |graph: &Graph| -> Vec<TensorType> {
        let outputs = graph.outputs().iter();
        outputs.map(|&value| graph.ty(value).clone()).collect()
    };
    assert_eq!(types(before), types(&after.graph));
    assert_eq!(before.inputs(), after.graph.inputs());
    check::outputs(&after.graph).unwrap();
    assert_eq!(after.graph.nodes().len(), after.origins.len());
    for origins in &after.origins {
        let mut known = origins.iter();
        assert!(!origins.is_empty() && known.all(|&at| at < before.nodes().len()));
    }
    let found = results(&Reference::new(), &after.graph, inputs);
    difference(before, expected, &found)
}

#[test]
fn no_pass_or_rule_changes_results() {
    let mut changed: BTreeMap<String, usize> = BTreeMap::new();
    for seed in 0..GRAPHS {
        let program = Program::new(seed).and_then(Program::fill).unwrap();
        let Program {
            graph,
            inputs,
            loss,
            ..
        } = &program;
        let reference = Reference::new();
        let expected = results(&reference, graph, inputs);
        let devices: Vec<DeviceType> = (0..graph.nodes().len())
            .map(|at| [DeviceType::Cpu, DeviceType::Metal(0)][at / 3 % 2])
            .collect();
        let recomputation = |saving| Recomputation {
            last: loss.unwrap_or(graph.outputs()[0]),
            bytes: peak(graph) / 2,
            saving,
        };
        let of_rule = |at: usize| Fusion {
            rules: &RULES[at..=at],
        };
        let rules: Vec<Fusion> = (0..RULES.len()).map(of_rule).collect();
        let mut passes: Vec<(String, f32, &dyn Pass)> = Vec::new();
        let exact: [&dyn Pass; 6] = [
            &Repeats,
            &LateUpdates,
            &recomputation(Saving::Recompute),
            &recomputation(Saving::Offload),
            &recomputation(Saving::Either),
            &Decomposition,
        ];
        for (at, pass) in exact.into_iter().enumerate() {
            passes.push((format!("{} {at}", pass.name()), 0.0, pass));
        }
        for (at, rule) in rules.iter().enumerate() {
            passes.push((format!("rule {at}"), ROUNDINGS, rule));
        }
        // The reference holds values in double precision: a conversion back to `f32` rounds.
        let conversion = Conversion {
            devices: &devices,
            dtype: DType::F64,
        };
        let rounding: [&dyn Pass; 3] = [&conversion, &Chunks { chunks: 2 }, &ChannelsLastImages];
        for pass in rounding {
            passes.push((pass.name().to_owned(), ROUNDINGS, pass));
        }
        for (name, tolerance, pass) in passes {
            let is_decomposition = pass.name() == Decomposition.name();
            let place = OneDevice(|s| !is_decomposition || reference.supports(s));
            let Some(rewritten) = pass.run(graph, &place).unwrap() else {
                changed.entry(name).or_default();
                continue;
            };
            let difference = compare(graph, &rewritten, &expected, inputs);
            assert!(
                difference <= tolerance,
                "{name} of seed {seed}: {difference}\n{graph}\n{}",
                rewritten.graph
            );
            *changed.entry(name).or_default() += 1;
        }
        // All of planning's, one after the other.
        let fusion = Fusion::default();
        let mut place = OneDevice(|_| true);
        let planned = Rewritten::from(graph.clone()).through(&planned(&fusion), &mut place, None);
        let difference = compare(graph, &planned.unwrap(), &expected, inputs);
        assert!(difference <= ROUNDINGS, "seed {seed}: {difference}");
    }
    let idle: Vec<&String> = (changed.iter())
        .filter_map(|(name, &count)| (count == 0).then_some(name))
        .collect();
    assert!(idle.is_empty(), "never changed a graph: {idle:?}");
}
