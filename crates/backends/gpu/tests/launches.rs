//! The kernels of a decoder's layer on each device. They are seen on devices that compute nothing
//! and note their launches.

use std::sync::{Arc, Mutex, PoisonError};

use rustorch_gpu::{Dialect, Driver, Gpu, Launch, Limits};
use rustorch_ir::ops::{
    Activation, ActivationKind, Assign, Attention, AttentionBackward, BinaryOp, CompareOp, Concat,
    ConvTranspose2d, Distribution, ExpertLinear, Linear, Random, Reduce, ReduceOp, RmsNorm, Rope,
    RopeLayout, RopeScaling, Softmax, TopK, UnaryOp, UpdateSlice,
};
use rustorch_ir::{BlockFormat, DType, Graph, Param, TensorType, ValueId};
use rustorch_runtime::{
    DeviceError, DeviceInfo, DeviceType, Hardware, HostBuffer, Routing, Runtime, Storage,
};

/// Requests to a device.
#[derive(Default)]
struct Asked {
    kernels: Vec<String>,
    /// Bytes of each buffer.
    buffers: Vec<usize>,
}

/// A device that computes nothing.
struct Pose {
    info: DeviceInfo,
    limits: Limits,
    dialect: Dialect,
    asked: Arc<Mutex<Asked>>,
}

impl Pose {
    /// One of a CUDA compute capability; of OpenCL if that is 0.
    fn new(cuda_capability: u32) -> Self {
        let memory = 1 << 40;
        let is_cuda = cuda_capability > 0;
        Self {
            info: DeviceInfo {
                device: DeviceType::Cuda(0),
                hardware: Hardware::Gpu,
                shares_host_memory: false,
                name: "posing".to_owned(),
                memory_bytes: Some(memory),
                details: Vec::new(),
            },
            limits: Limits {
                max_group: 1024,
                local_bytes: 227 << 10,
                max_buffer: memory,
                memory,
                has_f64: true,
                compute_units: 132,
                is_processor: false,
                cuda_capability,
            },
            dialect: if is_cuda {
                Dialect::Cuda
            } else {
                Dialect::OpenCl
            },
            asked: Arc::default(),
        }
    }

    fn note(&self, what: impl FnOnce(&mut Asked)) {
        what(&mut self.asked.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Driver for Pose {
    type Buffer = ();
    type Kernel = String;
    type Recording = ();

    const KEEPS_BINARIES: bool = false;

    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn dialect(&self) -> Dialect {
        self.dialect
    }

    fn alloc(&self, bytes: usize) -> Result<(), DeviceError> {
        self.note(|asked| asked.buffers.push(bytes));
        Ok(())
    }

    fn share(&self, _: &HostBuffer) -> Result<Option<()>, DeviceError> {
        Ok(None)
    }

    fn host<'b>(&self, (): &'b ()) -> Result<Option<&'b HostBuffer>, DeviceError> {
        Ok(None)
    }

    unsafe fn read(&self, (): &(), _: usize, to: &mut [u8]) -> Result<(), DeviceError> {
        to.fill(0);
        Ok(())
    }

    unsafe fn write(&self, (): &(), _: usize, _: &[u8]) -> Result<(), DeviceError> {
        Ok(())
    }

    fn compile(&self, _: &str) -> Result<Vec<u8>, DeviceError> {
        Ok(Vec::new())
    }

    fn load(&self, _: &[u8], name: &str) -> Result<String, DeviceError> {
        Ok(name.to_owned())
    }

    unsafe fn launch(&self, kernel: &String, _: &Launch<'_, Self>) -> Result<(), DeviceError> {
        self.note(|asked| asked.kernels.push(kernel.clone()));
        Ok(())
    }

    fn wait(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}

const HEADS: usize = 8;
const KV_HEADS: usize = 2;
const HEAD: usize = 64;
const WIDTH: usize = HEADS * HEAD;
const INNER: usize = 1024;
const CONTEXT: usize = 256;

/// A layer of a decoder over `t` tokens, whose gate is `kind`.
fn layer(t: usize, kind: ActivationKind) -> Graph {
    use BlockFormat::{Q4K, Q6K};
    let mut g = Graph::new();
    let mut input = |shape: &[usize], dtype| g.input(TensorType::new(shape, dtype)).unwrap();
    let x = input(&[t, WIDTH], DType::F32);
    let [positions, start] = [t, 1].map(|n| input(&[n], DType::I32));
    let caches = [0, 1].map(|_| input(&[KV_HEADS, CONTEXT, HEAD], DType::F16));
    let norms = [0, 1].map(|_| input(&[WIDTH], DType::F32));
    let mut weights = |n: usize, k: usize, format| input(&[n, k], DType::Block(format));
    let wq = weights(WIDTH, WIDTH, Q4K);
    let wk = weights(KV_HEADS * HEAD, WIDTH, Q4K);
    let wv = weights(KV_HEADS * HEAD, WIDTH, Q6K);
    let wo = weights(WIDTH, WIDTH, Q4K);
    let [w_gate, w_up] = [0, 1].map(|_| weights(INNER, WIDTH, Q4K));
    let w_down = weights(WIDTH, INNER, Q6K);

    let norm = RmsNorm { eps: Param(1e-5) };
    let y = g.push(norm.clone(), &[x, norms[0]]).unwrap();
    let mut heads = |w: ValueId, count: usize| {
        let y = g.push(Linear, &[y, w]).unwrap();
        let y = g.reshape(y, [t, count, HEAD]).unwrap();
        g.permute(y, &[1, 0, 2]).unwrap()
    };
    let (q, k, v) = (heads(wq, HEADS), heads(wk, KV_HEADS), heads(wv, KV_HEADS));
    let rope = Rope {
        dims: HEAD,
        layout: RopeLayout::Halves,
        base: Param(1e4),
        scaling: RopeScaling::Linear { factor: Param(1.0) },
    };
    let [q, k] = [q, k].map(|x| g.push(rope.clone(), &[x, positions]).unwrap());
    let update = UpdateSlice { dim: 1 };
    let keys = g.push(update.clone(), &[caches[0], k, start]).unwrap();
    let values = g.push(update, &[caches[1], v, start]).unwrap();
    let attention = Attention {
        scale: Param(0.125),
        causal: true,
        soft_cap: None,
        mask: false,
        past: true,
        window: None,
        log_sum_exp: false,
    };
    let y = g.push(attention, &[q, keys, values, start]).unwrap();
    let y = g.permute(y, &[1, 0, 2]).unwrap();
    let y = g.reshape(y, [t, WIDTH]).unwrap();
    let y = g.push(Linear, &[y, wo]).unwrap();
    let x = g.binary(BinaryOp::Add, x, y).unwrap();

    let y = g.push(norm, &[x, norms[1]]).unwrap();
    let [gate, up] = [w_gate, w_up].map(|w| g.push(Linear, &[y, w]).unwrap());
    let gate = g.push(Activation { kind }, &[gate]).unwrap();
    let y = g.binary(BinaryOp::Mul, gate, up).unwrap();
    let y = g.push(Linear, &[y, w_down]).unwrap();
    let x = g.binary(BinaryOp::Add, x, y).unwrap();
    g.output(x);
    g
}

/// Runs a graph of zeros, and tells what was asked of the device for it.
fn run(pose: Pose, graph: &Graph) -> Asked {
    run_by(pose, graph, true)
}

/// The same, with composites in place of other operations or without.
fn run_by(pose: Pose, graph: &Graph, fuses: bool) -> Asked {
    let asked = pose.asked.clone();
    let runtime = Runtime::new([Arc::new(Gpu::new(pose)) as _]);
    let zeros = |ty: &TensorType| {
        let bytes = vec![0; ty.bytes()];
        Storage::from_host(HostBuffer::copy_of(&bytes).unwrap())
    };
    let inputs: Vec<Storage> = graph.inputs().iter().map(zeros).collect();
    let routing = Routing {
        strict: true,
        fuses,
        ..Routing::default()
    };
    runtime
        .prepare(graph.clone(), routing)
        .run(&inputs)
        .unwrap();
    std::mem::take(&mut asked.lock().unwrap_or_else(PoisonError::into_inner))
}

fn kernels(cuda_capability: u32, t: usize, kind: ActivationKind) -> String {
    run(Pose::new(cuda_capability), &layer(t, kind))
        .kernels
        .join(" ")
}

#[test]
fn a_token_is_few_launches_on_hopper() {
    for &kind in ActivationKind::ALL {
        assert_eq!(
            kernels(90, 1, kind),
            "matvec attention_few matvec matvec matvec"
        );
    }
}

#[test]
fn prompts_are_products_of_panels_on_hopper() {
    // Weights of two types are two products, each of which does the norm by itself.
    for &kind in ActivationKind::ALL {
        assert_eq!(
            kernels(90, 100, kind),
            "panels gemm panels gemm rope rope update_slice update_slice attention_many panels gemm \
             panels gemm panels gemm"
        );
    }
}

/// The kernels of a product of `t` tokens with four of 16 experts each.
fn of_experts(cuda_capability: u32, t: usize, weights: DType) -> String {
    let mut g = Graph::new();
    let x = g.input(TensorType::new([t, 1, 512], DType::F32)).unwrap();
    let w = g.input(TensorType::new([16, 64, 512], weights)).unwrap();
    let ids = g.input(TensorType::new([t, 4], DType::I32)).unwrap();
    let y = g.push(ExpertLinear, &[x, w, ids]).unwrap();
    g.output(y);
    run(Pose::new(cuda_capability), &g).kernels.join(" ")
}

#[test]
fn few_rows_read_their_experts_and_many_are_sorted_by_them() {
    let blocks = DType::Block(BlockFormat::Q4K);
    for weights in [blocks, DType::BF16] {
        assert_eq!(of_experts(90, 1, weights), "matvec_experts");
        assert_eq!(of_experts(90, 100, weights), "expert_rows panels gemm");
    }
    assert_eq!(of_experts(0, 1, blocks), "quantize qmatvec");
    assert_eq!(of_experts(0, 100, blocks), "quantize expert_rows qmatmul");
    assert_eq!(of_experts(0, 1, DType::BF16), "matvec");
    assert_eq!(of_experts(0, 100, DType::BF16), "expert_rows matmul");
}

/// The kernels of a mixture of 16 experts, of which each of `t` tokens has four, with its residual.
fn of_mixture(cuda_capability: u32, t: usize, weights: BlockFormat) -> String {
    let mut g = Graph::new();
    let mut input = |shape: &[usize], dtype| g.input(TensorType::new(shape, dtype)).unwrap();
    let x = input(&[t, WIDTH], DType::F32);
    let router = input(&[16, WIDTH], DType::F32);
    let mut experts = |n: usize, k: usize| input(&[16, n, k], DType::Block(weights));
    let [w_gate, w_up] = [0, 1].map(|_| experts(INNER, WIDTH));
    let w_down = experts(WIDTH, INNER);
    let logits = g.push(Linear, &[x, router]).unwrap();
    let (k, dim, largest) = (4, 1, true);
    let best = g.push(TopK { k, dim, largest }, &[logits]).unwrap();
    let ids = g.results(best)[1];
    let factors = g.push(Softmax { dim, log: false }, &[best]).unwrap();
    let factors = g.reshape(factors, [t, 4, 1]).unwrap();
    let rows = g.reshape(x, [t, 1, WIDTH]).unwrap();
    let [gate, up] = [w_gate, w_up].map(|w| g.push(ExpertLinear, &[rows, w, ids]).unwrap());
    let kind = ActivationKind::Silu;
    let gate = g.push(Activation { kind }, &[gate]).unwrap();
    let y = g.mul(gate, up).unwrap();
    let y = g.push(ExpertLinear, &[y, w_down, ids]).unwrap();
    let y = g.mul(y, factors).unwrap();
    let (op, dims, keepdim) = (ReduceOp::Sum, [1].into_iter().collect(), false);
    let y = g.push(Reduce { op, dims, keepdim }, &[y]).unwrap();
    let y = g.add(x, y).unwrap();
    g.output(y);
    run(Pose::new(cuda_capability), &g).kernels.join(" ")
}

#[test]
fn a_mixture_of_experts_is_few_launches_on_hopper() {
    for weights in [BlockFormat::Q4K, BlockFormat::Q6K, BlockFormat::Mxfp4] {
        assert_eq!(
            of_mixture(90, 1, weights),
            "matvec top_k_few matvec_experts matvec_experts"
        );
    }
    // Rows of a prompt are sorted, and both products of a gate are one launch.
    let prompt = of_mixture(90, 100, BlockFormat::Q4K);
    let sorted = "top_k_few expert_rows panels gemm expert_rows panels gemm expert_sum";
    assert!(prompt.ends_with(sorted), "{prompt}");
    let apart = of_mixture(0, 1, BlockFormat::Q4K);
    let products = "top_k softmax quantize qmatvec quantize qmatvec pointwise quantize qmatvec";
    assert!(apart.contains(products), "{apart}");
}

/// The kernels of a convolution transposed, of few channels, as Hopper has it.
fn spread(stride: usize, kernel: usize) -> String {
    let mut g = Graph::new();
    let [x, w] = [[2, 8, 5, 5], [8, 3, kernel, kernel]]
        .map(|shape| g.input(TensorType::new(shape, DType::BF16)).unwrap());
    let op = ConvTranspose2d {
        stride: [stride; 2],
        padding: [kernel / 2; 2],
        ..ConvTranspose2d::default()
    };
    let y = g.push(op, &[x, w]).unwrap();
    g.output(y);
    run(Pose::new(90), &g).kernels.join(" ")
}

#[test]
fn transposed_convolutions_are_one_for_each_phase_on_hopper() {
    let phases = |count: usize| ["channels_last gemm"].repeat(count).join(" ");
    assert_eq!(spread(1, 3), format!("channels_last {}", phases(1)));
    assert_eq!(spread(2, 3), format!("channels_last {}", phases(4)));
    // No window reaches the pixels of the other phases.
    let filled = format!("fill_channels channels_last {}", phases(1));
    assert_eq!(spread(2, 1), filled);
}

#[test]
fn devices_without_kernels_of_their_own_have_those_of_all() {
    // Newer ones have products of few rows, but other tensor cores.
    assert_eq!(
        kernels(120, 1, ActivationKind::Silu),
        "matvec rope rope update_slice update_slice attention attention_combine matvec matvec \
         matvec"
    );
    for capability in [0, 80] {
        assert_eq!(
            kernels(capability, 1, ActivationKind::Silu),
            "rms_norm quantize qmatvec quantize qmatvec quantize qmatvec rope rope update_slice \
             update_slice attention attention_combine quantize qmatvec add_rms_norm quantize \
             qmatvec quantize qmatvec pointwise quantize qmatvec pointwise"
        );
    }
}

#[test]
fn values_are_in_buffers_that_the_device_has() {
    let t = 200;
    let graph = layer(t, ActivationKind::Silu);
    let largest_of = |asked: Asked| asked.buffers.into_iter().max();
    // Room for the widest value, or for what attention works in, and for no second one.
    let limit = t * INNER * 4 + (1 << 15);
    assert!(largest_of(run(Pose::new(80), &graph)) > Some(limit));
    let mut pose = Pose::new(80);
    pose.limits.max_buffer = limit as u64;
    assert!(largest_of(run(pose, &graph)) <= Some(limit));
}

/// AdamW of so many parameters, whose gradients are clipped by their norm.
fn updates(parameters: usize) -> Graph {
    let mut g = Graph::new();
    let shape = |i: usize| TensorType::new([3 + i % 7, 300], DType::F32);
    let mut input = |ty| g.input(ty).unwrap();
    let lr = input(TensorType::new([], DType::F32));
    let groups: Vec<[ValueId; 4]> = (0..parameters)
        .map(|i| [(); 4].map(|()| input(shape(i))))
        .collect();
    let mut norms = Vec::new();
    for &[.., gradient] in &groups {
        let square = g.mul(gradient, gradient).unwrap();
        let (op, keepdim) = (ReduceOp::Sum, false);
        let dims = [0, 1].into_iter().collect();
        let sum = g.push(Reduce { op, dims, keepdim }, &[square]).unwrap();
        let norm = g.unary(UnaryOp::Sqrt, sum).unwrap();
        norms.push(g.reshape(norm, [1]).unwrap());
    }
    let norms = g.push(Concat { dim: 0 }, &norms).unwrap();
    let total = g.mul(norms, norms).unwrap();
    let (op, keepdim) = (ReduceOp::Sum, false);
    let dims = [0].into_iter().collect();
    let total = g.push(Reduce { op, dims, keepdim }, &[total]).unwrap();
    let factor = g.unary(UnaryOp::Rsqrt, total).unwrap();
    for &[p, m, v, gradient] in &groups {
        let clipped = g.mul(gradient, factor).unwrap();
        let kept = g.mul_scalar(m, 0.9).unwrap();
        let new = g.mul_scalar(clipped, 0.1).unwrap();
        let mean = g.add(kept, new).unwrap();
        let kept = g.mul_scalar(v, 0.999).unwrap();
        let square = g.mul(clipped, clipped).unwrap();
        let new = g.mul_scalar(square, 0.001).unwrap();
        let variance = g.add(kept, new).unwrap();
        let root = g.unary(UnaryOp::Sqrt, variance).unwrap();
        let root = g.add_scalar(root, 1e-8).unwrap();
        let step = g.div(mean, root).unwrap();
        let step = g.mul(step, lr).unwrap();
        let next = g.sub(p, step).unwrap();
        for (state, next) in [(p, next), (m, mean), (v, variance)] {
            let state = g.push(Assign, &[state, next]).unwrap();
            g.output(state);
        }
    }
    g
}

#[test]
fn updates_of_many_parameters_are_few_launches() {
    let count = |capability: u32, fuses: bool| {
        let mut kernels = run_by(Pose::new(capability), &updates(150), fuses).kernels;
        let count = kernels.len();
        kernels.dedup();
        (kernels, count)
    };
    let [(_, alone), (_, alone_opencl)] = [90, 0].map(|capability| count(capability, false));
    let (kernels, cuda) = count(90, true);
    assert_eq!(
        kernels,
        [
            "foreach_reduce",
            "foreach_reduce_parts",
            "reduce",
            "foreach"
        ]
    );
    let (_, opencl) = count(0, true);
    // The room for pointers in a launch's parameters sets the number of launches.
    println!("{cuda} of {alone} launches on CUDA, {opencl} of {alone_opencl} on OpenCL");
    assert!(cuda <= 10 && opencl <= 25, "{cuda} and {opencl}");
    assert!(alone >= 6 * 150, "{alone}");
}

/// Dropout of `x`, the projection of a block, before the residual; and of what comes back.
#[test]
fn dropout_is_part_of_its_neighbours() {
    let mut g = Graph::new();
    let half = TensorType::new([1024, 512], DType::BF16);
    let [x, residual, gradient] = [(); 3].map(|()| g.input(half.clone()).unwrap());
    let key = g.input(TensorType::new([2], DType::I64)).unwrap();
    let numbers = Random {
        distribution: Distribution::Uniform,
        shape: half.shape,
        dtype: DType::F32,
    };
    let numbers = g.push(numbers, &[key]).unwrap();
    let p = g.constant(0.1, DType::F32).unwrap();
    let kept = g.compare(CompareOp::Ge, numbers, p).unwrap();
    let [scale, zero] = [1.0 / 0.9, 0.0].map(|x| g.constant(x, DType::F32).unwrap());
    let scale = g.select(kept, scale, zero).unwrap();
    let scale = g.cast(scale, DType::BF16).unwrap();
    let dropped = g.mul(x, scale).unwrap();
    let y = g.add(residual, dropped).unwrap();
    let d_x = g.mul(gradient, scale).unwrap();
    g.output(y);
    g.output(d_x);
    for capability in [0, 80, 90] {
        let asked = run(Pose::new(capability), &g);
        assert_eq!(asked.kernels, ["pointwise", "pointwise"]);
    }
}

#[test]
fn gradients_of_heads_are_written_where_they_are_joined() {
    let mut g = Graph::new();
    let half = TensorType::new([2, 4, 160, 64], DType::BF16);
    let [q, k, v, d_y] = [(); 4].map(|()| g.input(half.clone()).unwrap());
    let row = TensorType::new([2, 4, 160], DType::F32);
    let [totals, delta] = [(); 2].map(|()| g.input(row.clone()).unwrap());
    let attention = Attention {
        scale: Param(0.125),
        causal: true,
        soft_cap: None,
        mask: false,
        past: false,
        window: None,
        log_sum_exp: true,
    };
    let backward = AttentionBackward { attention };
    let first = g.push(backward, &[q, k, v, totals, d_y, delta]).unwrap();
    let heads: Vec<ValueId> = (g.results(first).into_iter())
        .map(|heads| {
            let rows = g.permute(heads, &[0, 2, 1, 3]).unwrap();
            g.reshape(rows, [2, 160, 256]).unwrap()
        })
        .collect();
    let joined = g.push(Concat { dim: 2 }, &heads).unwrap();
    let y = g.unary(UnaryOp::Neg, joined).unwrap();
    g.output(y);
    let asked = run(Pose::new(90), &g);
    assert_eq!(
        asked.kernels,
        ["attention_backward", "attention_backward", "pointwise"]
    );
}
