//! Chains of elementwise operations in one launch give what each operation gives alone.

mod running;

use std::process::ExitCode;
use std::sync::Mutex;

use rustorch_conformance::Extent;
use rustorch_cpu::Cpu;
use rustorch_gpu::Gpu;
use rustorch_ir::ops::{
    Activation, ActivationKind, AsStrided, BinaryOp, CompareOp, Contiguous, Reduce, ReduceOp,
    UnaryOp,
};
use rustorch_ir::{DType, Graph, Layout, Op, Role, Shape, TensorType, ValueId};
use rustorch_opencl::OpenCl;
use rustorch_reference::{Reference, Values};
use rustorch_runtime::{Backend, DeviceError, DeviceType, FailureClass, Probe, lower};
use rustorch_testing::{Suite, always, tests};

use running::{run, run_apart, run_with};

/// Pseudorandom numbers ([SplitMix64](https://doi.org/10.1145/2714064.2660195)).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}

/// Operations and values of a chain.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// All that there are.
    Any,
    /// Operations that are exact in every dtype, the reference's double precision included.
    Exact,
}

/// Bounds exact chains, in which whole numbers up to twice this come up.
const LARGEST: f64 = 8.0;

/// A chain that is being made.
struct Chain {
    random: Random,
    kind: Kind,
    graph: Graph,
    /// Possible operands, the newest last.
    values: Vec<ValueId>,
    /// Bytes of the inputs.
    inputs: Vec<Vec<u8>>,
}

impl Chain {
    fn new(seed: u64, kind: Kind) -> Self {
        let mut chain = Self {
            random: Random(seed),
            kind,
            graph: Graph::new(),
            values: Vec::new(),
            inputs: Vec::new(),
        };
        let shapes: [&[usize]; 9] = [
            &[],
            &[1],
            &[9000],
            &[3, 2100],
            &[130, 70],
            &[7, 5, 3],
            &[2, 3, 4, 50],
            &[60, 1, 80],
            &[0, 4],
        ];
        let shape = Shape::from(chain.random.pick(&shapes));
        let count = 1 + chain.random.below(5);
        let layouts: Vec<Layout> = (0..count).map(|i| chain.layout(&shape, i == 0)).collect();
        let mut stored = Vec::new();
        for layout in &layouts {
            let len = layout.end() + chain.random.below(3);
            let ty = TensorType::new([len], chain.random.pick(&DType::SCALARS));
            let bytes = (0..len).flat_map(|_| chain.element(ty.dtype)).collect();
            chain.inputs.push(bytes);
            stored.push(chain.graph.input(ty).unwrap());
        }
        for (layout, stored) in layouts.into_iter().zip(stored) {
            let value = chain.graph.push(AsStrided { layout }, &[stored]).unwrap();
            chain.values.insert(0, value);
        }
        for _ in 0..2 + chain.random.below(24) {
            chain.operation();
        }
        // The first input has all of the shape; results of others may have less of it.
        let (last, whole) = (chain.newest(), chain.values[count - 1]);
        let condition = chain.random_compare(whole);
        let zero = chain.constant(0.0, chain.dtype(last));
        let last = chain.graph.select(condition, last, zero).unwrap();
        chain.values.push(last);
        if chain.random.one_in(2) {
            chain.reduction();
        }
        let last = chain.newest();
        chain.graph.output(last);
        chain
    }

    /// A layout of a tensor that broadcasts to `shape`.
    fn layout(&mut self, shape: &Shape, whole: bool) -> Layout {
        let random = &mut self.random;
        let skipped = match whole {
            true => 0,
            false => random.below(shape.len() + 1) / 2,
        };
        let shape: Shape = (shape.iter().skip(skipped))
            .map(|&size| if !whole && random.one_in(4) { 1 } else { size })
            .collect();
        let mut layout = Layout::contiguous(&shape);
        layout.offset = random.below(4);
        if random.one_in(3) {
            return layout;
        }
        let mut order: Vec<usize> = (0..shape.len()).collect();
        (1..order.len()).for_each(|i| order.swap(i, random.below(i + 1)));
        let mut distance = 1 + random.below(2);
        for dim in order {
            layout.strides[dim] = if random.one_in(6) { 0 } else { distance };
            distance *= shape[dim].max(1);
            distance += if random.one_in(3) { distance } else { 0 };
        }
        layout
    }

    /// An element as memory holds it.
    fn element(&mut self, dtype: DType) -> Vec<u8> {
        let random = &mut self.random;
        let mut real = || match self.kind {
            Kind::Exact => random.below(2 * LARGEST as usize + 1) as f64 - LARGEST,
            Kind::Any if random.one_in(8) => random.pick(&[
                f64::NAN,
                f64::INFINITY,
                f64::NEG_INFINITY,
                -0.0,
                0.0,
                1e-40,
                -1e300,
                6e4,
            ]),
            Kind::Any => random.below(1 << 20) as f64 / 65536.0 - 8.0,
        };
        match dtype {
            d if d.is_float() || d.is_float8() => Values::Float(vec![real()]),
            d if d.is_complex() => return Values::Float(vec![real(), real()]).encode(d.real()),
            DType::Bool => Values::Int(vec![random.below(2) as i128]),
            _ if self.kind == Kind::Any => Values::Int(vec![random.next().into()]),
            d if d.is_unsigned() => Values::Int(vec![real().abs() as i128]),
            _ => Values::Int(vec![real() as i128]),
        }
        .encode(dtype)
    }

    fn newest(&self) -> ValueId {
        self.values[self.values.len() - 1]
    }

    fn dtype(&self, value: ValueId) -> DType {
        self.graph.ty(value).dtype
    }

    fn constant(&mut self, value: f64, dtype: DType) -> ValueId {
        self.graph.constant(value, dtype).unwrap()
    }

    /// Mostly the newest value.
    fn operand(&mut self) -> ValueId {
        match self.random.one_in(4) {
            true => self.random.pick(&self.values),
            false => self.newest(),
        }
    }

    /// An operand for an operation with one of `dtype`: another value, or a constant.
    fn partner(&mut self, dtype: DType) -> ValueId {
        match self.random.one_in(3) {
            true => {
                let value = self.random.below(LARGEST as usize + 1) as f64;
                self.constant(value, dtype)
            }
            false => {
                let value = self.random.pick(&self.values);
                self.cast(value, dtype)
            }
        }
    }

    fn cast(&mut self, value: ValueId, dtype: DType) -> ValueId {
        let from = self.dtype(value);
        // The dtype decides which number a negative one becomes.
        let loses_sign = dtype.is_unsigned() && from != DType::Bool && !from.is_unsigned();
        let value = match self.kind == Kind::Exact && loses_sign {
            true if from.is_complex() => {
                let real = self.graph.unary(UnaryOp::Real, value).unwrap();
                self.graph.unary(UnaryOp::Abs, real).unwrap()
            }
            true => {
                let value = self.computed(value);
                self.graph.unary(UnaryOp::Abs, value).unwrap()
            }
            false => value,
        };
        self.graph.cast(value, dtype).unwrap()
    }

    /// `value` in a type that can be computed with.
    fn computed(&mut self, value: ValueId) -> ValueId {
        match self.dtype(value).is_float8() {
            true => self.graph.cast(value, DType::F32).unwrap(),
            false => value,
        }
    }

    fn random_compare(&mut self, a: ValueId) -> ValueId {
        let a = self.computed(a);
        let dtype = self.dtype(a);
        let op = self.accepted(CompareOp::ALL, |op| op.accepts(dtype));
        let b = self.partner(dtype);
        self.graph.compare(op, a, b).unwrap()
    }

    fn accepted<T: Copy>(&mut self, all: &[T], accepts: impl Fn(T) -> bool) -> T {
        let choices: Vec<T> = all.iter().copied().filter(|&op| accepts(op)).collect();
        self.random.pick(&choices)
    }

    /// Adds an operation.
    fn operation(&mut self) {
        let x = self.operand();
        let x = self.computed(x);
        let dtype = self.dtype(x);
        let value = match self.random.below(8) {
            0 | 1 => self.unary(x),
            2 | 3 => self.binary(x),
            4 => self.random_compare(x),
            5 => {
                let condition = self.cast(x, DType::Bool);
                let (a, dtype) = (self.operand(), self.dtype(self.newest()));
                let (a, b) = (self.cast(a, dtype), self.partner(dtype));
                self.graph.select(condition, a, b).unwrap()
            }
            6 if dtype.is_float() => {
                let kind = match self.kind {
                    Kind::Any => self.random.pick(ActivationKind::ALL),
                    Kind::Exact => ActivationKind::Relu,
                };
                self.graph.push(Activation { kind }, &[x]).unwrap()
            }
            6 => self.graph.push(Contiguous, &[x]).unwrap(),
            _ => {
                let dtype = self.random.pick(&DType::SCALARS);
                self.cast(x, dtype)
            }
        };
        self.values.push(value);
    }

    /// Reduces the newest value, and goes on with what comes of it. Only what is the same in any
    /// order of elements.
    fn reduction(&mut self) {
        let newest = self.newest();
        let x = match self.kind {
            Kind::Any if self.dtype(newest).is_int() => newest,
            Kind::Any => self.random_compare(newest),
            Kind::Exact => self.computed(newest),
        };
        let TensorType { shape, dtype } = self.graph.ty(x).clone();
        let op = self.accepted(ReduceOp::ALL, |op| match op {
            ReduceOp::Sum => true,
            ReduceOp::Prod => false,
            ReduceOp::Max | ReduceOp::Min => op.accepts(dtype) && shape.elements() > 0,
        });
        let dims = (0..shape.len())
            .filter(|_| !self.random.one_in(3))
            .collect();
        let keepdim = self.random.one_in(2);
        let reduce = Reduce { op, dims, keepdim };
        let mut y = self.graph.push(reduce, &[x]).unwrap();
        let dtype = self.dtype(y);
        if BinaryOp::Minimum.accepts(dtype) {
            let most = self.constant(LARGEST, dtype);
            y = self.graph.binary(BinaryOp::Minimum, y, most).unwrap();
            let least = self.constant(0.0, dtype);
            y = self.graph.binary(BinaryOp::Maximum, y, least).unwrap();
        }
        self.values = vec![y];
        for _ in 0..self.random.below(4) {
            self.operation();
        }
    }

    fn unary(&mut self, x: ValueId) -> ValueId {
        use UnaryOp::{Abs, Ceil, Conj, Floor, IsNan, Neg, Not, Real, Round, Sign, Trunc};
        let dtype = self.dtype(x);
        let exact = match dtype {
            d if d.is_unsigned() => &[Abs, Sign][..],
            d if d.is_complex() => &[Neg, Conj, Real],
            _ => &[Neg, Abs, Sign, Ceil, Floor, Round, Trunc, IsNan, Not],
        };
        let ops = match self.kind {
            Kind::Any => UnaryOp::ALL,
            Kind::Exact => exact,
        };
        let op = self.accepted(ops, |op| op.accepts(dtype));
        self.graph.unary(op, x).unwrap()
    }

    fn binary(&mut self, a: ValueId) -> ValueId {
        use BinaryOp::{Add, And, Complex, FloorDivide, Maximum, Minimum, Or, Remainder, Xor};
        let dtype = self.dtype(a);
        let b = self.partner(dtype);
        if self.kind == Kind::Any {
            let op = self.accepted(BinaryOp::ALL, |op| {
                // Divisors may be 0.
                let divides = matches!(op, FloorDivide | Remainder);
                op.accepts(dtype) && !(divides && dtype.is_int())
            });
            return self.graph.binary(op, a, b).unwrap();
        }
        if dtype.is_complex() {
            return self.graph.unary(UnaryOp::Conj, a).unwrap();
        }
        let ops: &[BinaryOp] = match dtype {
            DType::Bool => &[And, Or, Xor, Maximum, Minimum],
            _ => &[Add, Maximum, Minimum, Complex],
        };
        let op = self.accepted(ops, |op| op.accepts(dtype));
        let value = self.graph.binary(op, a, b).unwrap();
        if op != Add {
            return value;
        }
        // Back into the range.
        let most = self.constant(LARGEST, dtype);
        let value = self.graph.binary(Minimum, value, most).unwrap();
        let least = match dtype {
            d if d.is_unsigned() => self.constant(0.0, dtype),
            _ => self.constant(-LARGEST, dtype),
        };
        self.graph.binary(Maximum, value, least).unwrap()
    }
}

fn slices(inputs: &[Vec<u8>]) -> Vec<&[u8]> {
    inputs.iter().map(Vec::as_slice).collect()
}

/// Ignores which NaN a NaN is.
fn without_nan_bits(bytes: &[u8], dtype: DType) -> Vec<u8> {
    let same = |x: f64| if x.is_nan() { f64::NAN } else { x };
    match Values::decode(bytes.to_vec(), dtype) {
        Values::Float(x) => Values::Float(x.into_iter().map(same).collect()).encode(dtype),
        Values::Complex(x) => {
            let parts = x.into_iter().flat_map(|z| [same(z.re), same(z.im)]);
            Values::Float(parts.collect()).encode(dtype.real())
        }
        _ => bytes.to_vec(),
    }
}

type OpenCls = Vec<Gpu<OpenCl>>;

/// Chains of these seeds, in one launch on the first device and by themselves on the last.
fn check_alone(devices: &[&dyn Backend], seeds: impl IntoIterator<Item = u64>) {
    for seed in seeds {
        let chain = Chain::new(seed, Kind::Any);
        let dtype = chain.dtype(chain.graph.outputs()[0]);
        let alone = run_apart(devices[devices.len() - 1], &chain.graph, &chain.inputs).remove(0);
        let alone = without_nan_bits(&alone, dtype);
        for device in devices {
            let fused = run(*device, &chain.graph, &slices(&chain.inputs)).remove(0);
            let fused = without_nan_bits(&fused, dtype);
            assert!(fused == alone, "seed {seed}: {:#?}", chain.graph);
        }
    }
}

fn check_reference(device: &dyn Backend, seeds: impl IntoIterator<Item = u64>) {
    let reference = Reference::new();
    for seed in seeds {
        let chain = Chain::new(seed, Kind::Exact);
        let dtype = chain.dtype(chain.graph.outputs()[0]);
        let definition = decomposed(&chain.graph);
        let fused = run(device, &chain.graph, &slices(&chain.inputs)).remove(0);
        let expected = run(&reference, &definition, &slices(&chain.inputs)).remove(0);
        let [fused, expected] = [fused, expected].map(|bytes| Values::decode(bytes, dtype));
        assert!(fused == expected, "seed {seed}: {:#?}", chain.graph);
    }
}

fn fused_on_the_cpu_is_as_alone() {
    check_alone(&[&Cpu::new(3), &Cpu::new(1)], 0..400);
}

fn fused_on_the_cpu_agrees_with_the_reference() {
    check_reference(&Cpu::new(2), 0..400);
}

/// Fewer of them: each is a kernel that has to be compiled.
fn fused_on_opencl_is_as_alone(opencl: &OpenCls) {
    for device in opencl {
        check_alone(&[device], Extent::of_tests().choose(0..12, 4));
    }
}

fn fused_on_opencl_agrees_with_the_reference(opencl: &OpenCls) {
    for device in opencl {
        check_reference(device, Extent::of_tests().choose(0..60, 15));
    }
}

/// The graph with composites as what they are made of.
fn decomposed(graph: &Graph) -> Graph {
    let mut result = Graph::new();
    let mut values: Vec<ValueId> = (graph.inputs().iter())
        .map(|ty| result.input(ty.clone()).unwrap())
        .collect();
    for node in graph.nodes() {
        let inputs: Vec<ValueId> = node.inputs.iter().map(|v| values[v.index()]).collect();
        match node.op.def().is_composite() {
            true => values.extend(result.expand(&node.op, &inputs).unwrap()),
            false => {
                let first = result.push(node.op.clone(), &inputs).unwrap();
                values.extend(result.results(first));
            }
        }
    }
    for output in graph.outputs() {
        result.output(values[output.index()]);
    }
    result
}

/// Eight operations with broadcasting, constants and several dtypes.
fn eight(g: &mut Graph) -> ValueId {
    let x = g.input(TensorType::new([3, 1000], DType::F32)).unwrap();
    let row = g.input(TensorType::new([1000], DType::F32)).unwrap();
    let y = g.mul(x, row).unwrap();
    let y = g.cast(y, DType::F16).unwrap();
    let y = g.unary(UnaryOp::Exp, y).unwrap();
    let least = g.constant(0.5, DType::F16).unwrap();
    let small = g.compare(CompareOp::Lt, y, least).unwrap();
    let y = g.select(small, least, y).unwrap();
    let y = g.cast(y, DType::I32).unwrap();
    g.unary(UnaryOp::Neg, y).unwrap()
}

fn a_chain_is_one_launch() {
    let mut g = Graph::new();
    let y = eight(&mut g);
    g.output(y);
    let lowered = lower(&g, &Cpu::new(1)).unwrap();
    assert_eq!((lowered.steps.len(), lowered.arena_bytes()), (1, 0));
}

fn a_reduction_with_what_is_around_it_is_one_launch() {
    let mut g = Graph::new();
    let x = g.input(TensorType::new([3, 1000], DType::F32)).unwrap();
    let y = g.input(TensorType::new([1000], DType::F32)).unwrap();
    let way = g.sub(x, y).unwrap();
    let square = g.mul(way, way).unwrap();
    let sum = g.reduce(ReduceOp::Sum, square, 1).unwrap();
    let y = g.unary(UnaryOp::Sqrt, sum).unwrap();
    g.output(y);
    let lowered = lower(&g, &Cpu::new(1)).unwrap();
    assert_eq!((lowered.steps.len(), lowered.arena_bytes()), (1, 0));
}

fn results_larger_than_caches() {
    const COLUMNS: usize = 9001;
    const ROWS: usize = 1000;
    let mut g = Graph::new();
    let x = g
        .input(TensorType::new([ROWS, COLUMNS], DType::F32))
        .unwrap();
    let row = g.input(TensorType::new([COLUMNS], DType::F32)).unwrap();
    let y = g.add(x, row).unwrap();
    let y = g.mul_scalar(y, 1.5).unwrap();
    g.output(y);
    let y = g.compare(CompareOp::Lt, y, x).unwrap();
    g.output(y);
    let numbers = |count: u32| (0..count).map(|i| (i % 1021) as f32 - 500.0);
    let inputs = [ROWS * COLUMNS, COLUMNS].map(|count| numbers(count as u32));
    let bytes = inputs
        .clone()
        .map(|x| x.flat_map(f32::to_ne_bytes).collect());
    let [x, row] = inputs.map(Iterator::collect::<Vec<f32>>);
    let outputs = run(&Cpu::new(2), &g, &slices(&bytes));
    let scaled = |i: usize| (x[i] + row[i % COLUMNS]) * 1.5;
    let (sums, _) = outputs[0].as_chunks();
    let wrong = (0..x.len()).find(|&i| f32::from_ne_bytes(sums[i]) != scaled(i));
    assert_eq!(wrong, None);
    let wrong = (0..x.len()).find(|&i| outputs[1][i] != u8::from(scaled(i) < x[i]));
    assert_eq!(wrong, None);
}

/// Fails before the node of a number, and notes which were asked for.
struct FailsAt(usize, Mutex<Vec<usize>>);

impl Probe for FailsAt {
    fn before(&self, node: usize, _: &Op) -> Result<(), DeviceError> {
        self.1.lock().unwrap().push(node);
        match node == self.0 {
            true => {
                let (device, class) = (DeviceType::Cpu, FailureClass::Lost);
                Err(DeviceError::new(device, class, "on command"))
            }
            false => Ok(()),
        }
    }
}

fn faults_strike_at_every_operation() {
    let mut g = Graph::new();
    let y = eight(&mut g);
    g.output(y);
    let inputs = [vec![0; 12_000], vec![0; 4000]];
    let nodes: Vec<usize> = (0..g.nodes().len())
        .filter(|&i| g.nodes()[i].op.def().role() != Role::View)
        .collect();
    for &guilty in &nodes {
        let probe = FailsAt(guilty, Mutex::default());
        let result = run_with(&Cpu::new(2), &g, &slices(&inputs), &probe);
        assert_eq!(result.unwrap_err().class, FailureClass::Lost);
        assert!(probe.1.lock().unwrap().contains(&guilty));
    }
    let probe = FailsAt(usize::MAX, Mutex::default());
    run_with(&Cpu::new(2), &g, &slices(&inputs), &probe).unwrap();
    let mut asked = probe.1.into_inner().unwrap();
    // A constant can be part of several launches, or of one for several uses.
    asked.sort_unstable();
    asked.dedup();
    assert_eq!(asked, nodes);
}

fn main() -> ExitCode {
    let opencl = tests![
        fused_on_opencl_is_as_alone,
        fused_on_opencl_agrees_with_the_reference,
    ];
    let devices = rustorch_opencl::devices();
    let devices = devices.map(|all| all.into_iter().map(Gpu::new).collect::<OpenCls>());
    Suite::new()
        .always(always![
            fused_on_the_cpu_is_as_alone,
            fused_on_the_cpu_agrees_with_the_reference,
            a_chain_is_one_launch,
            a_reduction_with_what_is_around_it_is_one_launch,
            results_larger_than_caches,
            faults_strike_at_every_operation,
        ])
        .on(devices, "RUSTORCH_TEST_OPENCL", opencl)
        .run()
}
