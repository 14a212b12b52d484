//! Choice of an operation's device, and the reason given.

use rustorch_ir::ops::{Conv2d, Distribution, Linear, Random, RmsNorm, UnaryOp, UpdateSlice};
use rustorch_ir::{DType, GpuDevice, Graph, OpKind, TensorType};
use rustorch_runtime::{
    DeviceSelector, DeviceType, GpuExecutionStrategy, Hardware, OpType, Routing, RunError, Runtime,
    TensorInfo, supports_coreml,
};

use crate::fake::{Fake, cpu};
use crate::{GPU, choice, explain, graph, neg, on, storage, strict, sum, values};

const COREML: DeviceType = DeviceType::CoreML(0);
const METAL: DeviceType = DeviceType::Metal(0);
const CUDA: DeviceType = DeviceType::Cuda(0);

/// Elements of a graph that is worth a GPU, and of one that is large.
const MEDIUM: usize = 1 << 18;
const LARGE: usize = 1 << 25;

fn runtime() -> Runtime {
    Runtime::new([cpu(), Fake::gpu(GPU).backend()])
}

fn mac() -> Runtime {
    Runtime::new([
        cpu(),
        Fake::gpu(METAL).backend(),
        Fake::new(COREML, Hardware::NeuralEngine).backend(),
    ])
}

#[test]
fn devices_are_in_the_platforms_order() {
    let processor = DeviceType::OpenCL(1);
    let runtime = Runtime::new([
        Fake::new(DeviceType::Reference, Hardware::Processor).backend(),
        Fake::new(processor, Hardware::Processor).backend(),
        cpu(),
        Fake::gpu(GPU).backend(),
        Fake::gpu(CUDA).backend(),
        Fake::gpu(METAL).backend(),
        Fake::new(COREML, Hardware::NeuralEngine).backend(),
    ]);
    let order: Vec<DeviceType> = runtime.devices().map(|info| info.device).collect();
    let cpu = DeviceType::Cpu;
    let reference = DeviceType::Reference;
    assert_eq!(order, [COREML, METAL, CUDA, GPU, cpu, processor, reference]);
}

#[test]
fn a_graph_is_judged_by_its_size() {
    let place = |runtime: &Runtime, n: usize| choice(runtime, &graph(n, neg), Routing::AUTO);
    let runtime = runtime();
    let small = (DeviceType::Cpu, "too small for a GPU".to_owned());
    assert_eq!(place(&runtime, 1000), small);
    assert_eq!(place(&runtime, MEDIUM).0, GPU);
    let mac = mac();
    assert_eq!(place(&mac, 1000), small);
    assert_eq!(
        place(&mac, MEDIUM),
        (COREML, "first in the chain".to_owned())
    );
    let large = (METAL, "large enough for the best GPU".to_owned());
    assert_eq!(place(&mac, LARGE), large);
    mac.set_selector(DeviceSelector {
        large_bytes: usize::MAX,
        ..DeviceSelector::default()
    });
    assert_eq!(place(&mac, LARGE).0, COREML);
    // A step with large weights does not leave its device for small activations.
    let mut g = Graph::new();
    let x = g.input(TensorType::new([1, 512], DType::F32)).unwrap();
    let w = g.input(TensorType::new([512, 512], DType::F32)).unwrap();
    let y = g.push(Linear, &[x, w]).unwrap();
    let y = neg(&mut g, y);
    g.output(y);
    let rows = explain(&runtime, &g, Routing::AUTO);
    assert!(rows.iter().all(|row| row.device == GPU), "{rows:?}");
}

#[test]
fn without_a_gpu_nothing_is_said_of_one() {
    let runtime = Runtime::new([cpu()]);
    let found = choice(&runtime, &graph(4, neg), Routing::AUTO);
    assert_eq!(found, (DeviceType::Cpu, "first in the chain".to_owned()));
}

#[test]
fn core_ml_is_offered_what_it_is_good_for() {
    let mac = mac();
    let device = |graph: &Graph| explain(&mac, graph, Routing::AUTO)[0].device;
    let typed = |shape: &[usize], dtype| {
        let mut g = Graph::new();
        let x = g.input(TensorType::new(shape, dtype)).unwrap();
        let y = g.unary(UnaryOp::Neg, x).unwrap();
        g.output(y);
        g
    };
    assert_eq!(device(&typed(&[MEDIUM], DType::F16)), COREML);
    assert_eq!(device(&typed(&[1, 1, 1, 1, MEDIUM], DType::F32)), COREML);
    assert_eq!(device(&typed(&[1, 1, 1, 1, 1, MEDIUM], DType::F32)), METAL);
    assert_eq!(device(&typed(&[MEDIUM], DType::F64)), METAL);
    assert_eq!(device(&typed(&[MEDIUM], DType::Complex64)), METAL);
    let reduced = |shape: &[usize]| {
        let mut g = Graph::new();
        let x = g.input(TensorType::new(shape, DType::F32)).unwrap();
        let y = sum(&mut g, x);
        g.output(y);
        g
    };
    assert_eq!(device(&reduced(&[1, 1, 1, MEDIUM])), COREML);
    assert_eq!(device(&reduced(&[1, 1, 1, 1, MEDIUM])), METAL);
    let mut random = Graph::new();
    let op = Random {
        shape: [MEDIUM].into(),
        dtype: DType::F32,
        distribution: Distribution::Normal,
    };
    let key = random.input(TensorType::new([2], DType::I64)).unwrap();
    let y = random.push(op, &[key]).unwrap();
    random.output(y);
    assert_eq!(device(&random), METAL);
}

#[test]
fn a_pin_goes_before_everything() {
    let runtime = runtime();
    runtime.set_route(OpKind::Unary, DeviceType::Cpu);
    let mut g = graph(4, neg);
    g.pin(g.outputs()[0], Some(GPU));
    let pinned = (GPU, "pinned to opencl:0".to_owned());
    for routing in [
        Routing::AUTO,
        on(DeviceType::Cpu),
        strict(on(DeviceType::Cpu)),
    ] {
        assert_eq!(choice(&runtime, &g, routing), pinned);
    }
    let outputs = runtime
        .run(&g, &[storage(&[1.0; 4])], Routing::AUTO)
        .unwrap();
    assert_eq!(runtime.device_of(&outputs[0]), GPU);
    assert_eq!(values(&runtime, &outputs[0]), [-1.0; 4]);
}

#[test]
fn a_pin_that_cannot_be_met_falls_down_the_chain_or_is_an_error() {
    let gpu = || Fake::gpu(GPU).without(&[OpKind::Unary]).backend();
    let runtime = Runtime::new([gpu(), cpu()]);
    let mut g = graph(4, neg);
    g.pin(g.outputs()[0], Some(GPU));
    let why = "opencl:0: no kernel for unary of f32";
    let found = choice(&runtime, &g, Routing::AUTO);
    assert_eq!(found, (DeviceType::Cpu, why.to_owned()));
    let error = |g: &Graph| {
        let executable = runtime.prepare(g.clone(), strict(Routing::AUTO));
        executable.explain().unwrap_err().to_string()
    };
    assert_eq!(
        error(&g),
        format!("no device can run unary of f32[4]: {why}")
    );
    // The error names the Cargo feature that would bring the operation.
    let lacking = Fake::gpu(GPU).without(&[OpKind::Unary]);
    let runtime_without = Runtime::new([lacking.without_feature("linalg").backend()]);
    let executable = runtime_without.prepare(g.clone(), strict(Routing::AUTO));
    assert_eq!(
        executable.explain().unwrap_err().to_string(),
        format!("no device can run unary of f32[4]: {why} without the Cargo feature linalg")
    );
    // The error says so if a result exceeds the device's memory.
    let mut large = graph(1 << 30, neg);
    large.pin(large.outputs()[0], Some(GPU));
    let why = "opencl:0: out of memory: a result of 4294967296 bytes, of 1073741824 in all";
    assert!(error(&large).ends_with(why), "{}", error(&large));
    g.pin(g.outputs()[0], Some(CUDA));
    let why = "cuda:0: not on this machine";
    assert_eq!(choice(&runtime, &g, Routing::AUTO).1, why);
    assert!(error(&g).ends_with(why), "{}", error(&g));
}

#[test]
fn the_parts_of_a_pinned_composite_are_pinned() {
    let gpu = Fake::gpu(GPU).without(&[OpKind::RmsNorm]).backend();
    let runtime = Runtime::new([cpu(), gpu]);
    let mut g = Graph::new();
    let x = g.input(TensorType::new([2, 8], DType::F32)).unwrap();
    let y = g.push(RmsNorm { eps: 1e-5.into() }, &[x]).unwrap();
    g.pin(y, Some(GPU));
    g.output(y);
    let rows = explain(&runtime, &g, Routing::AUTO);
    assert!(rows.len() > 2);
    for row in rows {
        assert_eq!(row.device, GPU, "{}", row.op);
        assert_eq!(row.reason, "part of rms_norm, which has no kernel here");
    }
}

#[test]
fn routes_go_by_operation_then_by_family() {
    let runtime = runtime();
    let g = graph(4, neg);
    runtime.set_route(OpType::Activation, GPU);
    let routed = (GPU, "routed to opencl:0".to_owned());
    assert_eq!(choice(&runtime, &g, Routing::AUTO), routed);
    runtime.set_route(OpKind::Unary, DeviceType::Cpu);
    let routed = (DeviceType::Cpu, "routed to cpu".to_owned());
    assert_eq!(choice(&runtime, &g, on(GPU)), routed);
    runtime.clear_routes();
    let asked = (GPU, "opencl:0 was asked for".to_owned());
    assert_eq!(choice(&runtime, &g, on(GPU)), asked);
}

#[test]
fn plans_follow_a_change_of_the_routes() {
    let runtime = runtime();
    let executable = runtime.prepare(graph(4, neg), Routing::AUTO);
    let device = |runtime: &Runtime| {
        let outputs = executable.run(&[storage(&[2.0; 4])]).unwrap();
        assert_eq!(values(runtime, &outputs[0]), [-2.0; 4]);
        runtime.device_of(&outputs[0])
    };
    assert_eq!(device(&runtime), DeviceType::Cpu);
    runtime.set_route(OpType::Activation, GPU);
    assert_eq!(device(&runtime), GPU);
    runtime.clear_routes();
    assert_eq!(device(&runtime), DeviceType::Cpu);
}

/// The device of the only operation of a kind, by the rules of the f32 hybrid.
fn f32_choice(runtime: &Runtime, graph: &Graph) -> (DeviceType, String) {
    choice(runtime, graph, Routing::F32_HYBRID)
}

fn product(rows: usize) -> Graph {
    let mut g = Graph::new();
    let x = g.input(TensorType::new([rows, 100], DType::F32)).unwrap();
    let y = g.input(TensorType::new([100, 1], DType::F32)).unwrap();
    let z = g.matmul(x, y).unwrap();
    g.output(z);
    g
}

#[test]
fn the_f32_hybrid_goes_by_the_operation() {
    let mac = mac();
    let (at_most, above) = (product(100), product(101));
    assert_eq!(f32_choice(&mac, &at_most).0, DeviceType::Cpu);
    let large = "f32 hybrid: a product above 10 000 elements".to_owned();
    assert_eq!(f32_choice(&mac, &above), (METAL, large.clone()));
    assert_eq!(f32_choice(&mac, &graph(4, neg)).0, COREML);
    assert_eq!(f32_choice(&mac, &graph(LARGE, sum)).0, DeviceType::Cpu);
    // Without Apple's devices the next of the chain; the processor's other driver is one.
    for others in [vec![CUDA, GPU], vec![GPU]] {
        let first = others[0];
        let gpus = others.into_iter().map(|gpu| Fake::gpu(gpu).backend());
        let runtime = Runtime::new(gpus.chain([cpu()]));
        assert_eq!(f32_choice(&runtime, &above), (first, large.clone()));
        assert_eq!(f32_choice(&runtime, &graph(4, neg)).0, first);
    }
    let pocl = Fake::new(GPU, Hardware::Processor);
    let runtime = Runtime::new([cpu(), pocl.backend()]);
    assert_eq!(f32_choice(&runtime, &above).0, GPU);
    let alone = Runtime::new([cpu()]);
    assert_eq!(f32_choice(&alone, &above), (DeviceType::Cpu, large));
    // Pins, routes and devices that are asked for go before.
    mac.set_route(OpType::LinearAlgebra, DeviceType::Cpu);
    assert_eq!(f32_choice(&mac, &above).1, "routed to cpu");
}

#[test]
fn the_f32_hybrid_keeps_state_where_products_read_it() {
    let mut g = Graph::new();
    let state = g.input(TensorType::new([1, 8], DType::F32)).unwrap();
    let x = g.input(TensorType::new([8], DType::F32)).unwrap();
    let at = g.input(TensorType::new([1], DType::I32)).unwrap();
    let rows = g.reshape(x, [2, 4]).unwrap();
    let total = g.reduce(rustorch_ir::ops::ReduceOp::Sum, rows, 0).unwrap();
    let state = g.push(UpdateSlice { dim: 1 }, &[state, total, at]).unwrap();
    g.output(state);
    let rows = explain(&mac(), &g, Routing::F32_HYBRID);
    let places: Vec<_> = rows.iter().map(|r| (r.op.as_str(), r.device)).collect();
    let expected = [("sum", DeviceType::Cpu), ("update_slice", METAL)];
    assert_eq!(places, expected);
}

/// Operations of a network: `x` is convolved and summed, multiplied with `w`, normalised and
/// negated.
fn network(elements: usize) -> Graph {
    let mut g = Graph::new();
    let x = TensorType::new([1, 1, 4, elements / 4], DType::F32);
    let w = TensorType::new([elements / 4, 4], DType::F32);
    let kernel = TensorType::new([1, 1, 1, 1], DType::F32);
    let [x, w, kernel] = [x, w, kernel].map(|ty| g.input(ty).unwrap());
    let x = g.push(Conv2d::default(), &[x, kernel]).unwrap();
    let x = g.reshape(x, [4, elements / 4]).unwrap();
    let total = sum(&mut g, x);
    let y = g.matmul(x, w).unwrap();
    let y = g.push(RmsNorm { eps: 1e-5.into() }, &[y]).unwrap();
    let largest = sum(&mut g, y);
    let y = neg(&mut g, y);
    [total, largest, y].into_iter().for_each(|v| g.output(v));
    g
}

/// The devices of a network's operations, but views.
fn places(runtime: &Runtime, elements: usize, routing: Routing) -> Vec<(String, DeviceType)> {
    let rows = explain(runtime, &network(elements), routing).into_iter();
    let computing = rows.filter(|row| row.op != "reshape");
    computing.map(|row| (row.op, row.device)).collect()
}

#[test]
fn the_mac_hybrid_goes_by_the_operation() {
    let mac = mac();
    let by_operation = [
        ("conv2d", COREML),
        ("sum", COREML),
        ("matmul", METAL),
        ("rms_norm", METAL),
        ("sum", METAL),
        ("neg", COREML),
    ];
    let by_operation = by_operation.map(|(op, device)| (op.to_owned(), device));
    let hybrid = Routing::MAC_HYBRID;
    assert_eq!(places(&mac, MEDIUM, hybrid), by_operation);
    let is_whole = |runtime: &Runtime, elements: usize, device: DeviceType| {
        let places = places(runtime, elements, hybrid);
        assert!(places.iter().all(|p| p.1 == device), "{places:?}");
    };
    // By the size of the whole.
    is_whole(&mac, 1000, DeviceType::Cpu);
    is_whole(&mac, LARGE, METAL);
    // One of the two is enough, and others come behind them.
    for only in [COREML, METAL] {
        let hardware = match only {
            COREML => Hardware::NeuralEngine,
            _ => Hardware::Gpu,
        };
        let one = Fake::new(only, hardware).backend();
        let runtime = Runtime::new([cpu(), Fake::gpu(CUDA).backend(), one]);
        is_whole(&runtime, MEDIUM, only);
    }
    let reasons = explain(&mac, &network(MEDIUM), hybrid);
    let reasons: Vec<&str> = reasons.iter().map(|row| &row.reason[..]).collect();
    for reason in [
        "mac hybrid: convolutions and activations",
        "mac hybrid: products and RMSNorm",
        "where its neighbour is",
    ] {
        assert!(reasons.contains(&reason), "{reasons:?}");
    }
    // Pins, routes and what Core ML is not good for go before.
    mac.set_route(OpKind::Matmul, COREML);
    assert_eq!(places(&mac, MEDIUM, hybrid)[2].1, COREML);
    let wide = TensorType::new([1, 1, 1, 1, 1, MEDIUM], DType::F32);
    let mut g = Graph::new();
    let x = g.input(wide).unwrap();
    let y = neg(&mut g, x);
    g.output(y);
    assert_eq!(choice(&mac, &g, hybrid).0, METAL);
}

#[test]
fn strategies_leave_devices_out() {
    let runtime = runtime();
    let with = |strategy| Routing {
        strategy,
        ..Routing::AUTO
    };
    let cpu_only = with(GpuExecutionStrategy::CpuOnly);
    let gpu_only = with(GpuExecutionStrategy::GpuOnly);
    let (small, medium) = (graph(4, neg), graph(MEDIUM, neg));
    assert_eq!(choice(&runtime, &medium, cpu_only).0, DeviceType::Cpu);
    assert_eq!(choice(&runtime, &small, gpu_only).0, GPU);
    let small_gpu = with(GpuExecutionStrategy::Hybrid { gpu_threshold: 16 });
    assert_eq!(choice(&runtime, &small, small_gpu).0, GPU);
    let asked = Routing {
        device: GPU,
        ..cpu_only
    };
    let left_out = "opencl:0: left out by the strategy CPU only".to_owned();
    let found = choice(&runtime, &small, asked);
    assert_eq!(found, (DeviceType::Cpu, left_out));
    // The processor runs what no GPU can, unless that is ruled out.
    let lacking = Fake::gpu(GPU).without(&[OpKind::Unary]).backend();
    let runtime = Runtime::new([cpu(), lacking]);
    assert_eq!(choice(&runtime, &small, gpu_only).0, DeviceType::Cpu);
    let error = runtime.prepare(small, strict(gpu_only)).explain();
    assert!(matches!(error, Err(RunError::NoDevice { .. })));
}

#[test]
fn the_core_ml_hybrid_goes_on_with_its_gpu() {
    let lacking = Fake::new(COREML, Hardware::NeuralEngine).without(&[OpKind::Unary]);
    let devices = [
        cpu(),
        Fake::gpu(METAL).backend(),
        Fake::gpu(CUDA).backend(),
        lacking.backend(),
    ];
    let runtime = Runtime::new(devices);
    let hybrid = |fallback_gpu| {
        on(DeviceType::CoreMLHybrid {
            coreml_id: 0,
            fallback_gpu,
        })
    };
    let device =
        |build: fn(&mut Graph, _) -> _, gpu| choice(&runtime, &graph(4, build), hybrid(gpu)).0;
    assert_eq!(device(sum, None), COREML);
    assert_eq!(device(neg, None), METAL);
    assert_eq!(device(neg, Some(GpuDevice::Cuda(0))), CUDA);
}

/// The rules of what Core ML is offered hold for whoever asks for it.
#[test]
fn core_ml_is_asked_only_for_what_it_is_good_for() {
    let runtime = mac();
    let rank = |rank: usize| TensorType::new(vec![2; rank], DType::F32);
    let mut reduction = Graph::new();
    let x = reduction.input(rank(5)).unwrap();
    let y = sum(&mut reduction, x);
    reduction.output(y);
    let mut activation = Graph::new();
    let x = activation.input(rank(5)).unwrap();
    let y = neg(&mut activation, x);
    activation.output(y);
    let mut pinned = reduction.clone();
    pinned.pin(pinned.outputs()[0], Some(COREML));
    let hybrid = DeviceType::CoreMLHybrid {
        coreml_id: 0,
        fallback_gpu: None,
    };
    let why = "coreml:0: not what Core ML is good for";
    assert_eq!(choice(&runtime, &activation, on(COREML)).0, COREML);
    for (graph, routing, next) in [
        (&reduction, on(COREML), DeviceType::Cpu),
        (&reduction, on(hybrid), METAL),
        (&pinned, Routing::AUTO, DeviceType::Cpu),
    ] {
        assert_eq!(choice(&runtime, graph, routing), (next, why.to_owned()));
    }
    runtime.set_route(OpKind::Reduce, COREML);
    let routed = choice(&runtime, &reduction, Routing::AUTO);
    assert_eq!(routed, (DeviceType::Cpu, why.to_owned()));
    // Each family has its own highest rank, and some are never offered.
    let supports = |op_type, rank: usize, dtype| {
        let tensor = TensorInfo::new(TensorType::new(vec![2; rank], dtype));
        supports_coreml(op_type, &tensor)
    };
    for (op_type, most) in [
        (OpType::LinearAlgebra, 5),
        (OpType::Convolution, 5),
        (OpType::Activation, 5),
        (OpType::Reduction, 4),
        (OpType::Normalization, 4),
        (OpType::ComplexMath, 0),
        (OpType::Distribution, 0),
        (OpType::CustomKernel, 0),
        (OpType::DistributedOps, 0),
    ] {
        for dtype in [DType::F16, DType::F32] {
            let taken: Vec<usize> = (1..=6).filter(|&n| supports(op_type, n, dtype)).collect();
            assert_eq!(taken, (1..=most).collect::<Vec<_>>(), "{op_type:?}");
        }
        assert!(!supports(op_type, 2, DType::F64));
        let custom = TensorInfo {
            custom_kernel: true,
            ..TensorInfo::new(rank(2))
        };
        assert!(!supports_coreml(op_type, &custom));
    }
}

#[test]
fn a_device_that_is_missing_is_named() {
    let runtime = runtime();
    let g = graph(4, neg);
    let found = choice(&runtime, &g, on(CUDA));
    let missing = "cuda:0: not on this machine";
    assert_eq!(found, (DeviceType::Cpu, missing.to_owned()));
    let error = runtime.run(&g, &[storage(&[0.0; 4])], strict(on(CUDA)));
    assert_eq!(
        error.unwrap_err().to_string(),
        format!("no device can run unary of f32[4]: {missing}")
    );
}

#[test]
fn views_and_constants_go_where_they_are_read() {
    let runtime = runtime();
    let mut g = Graph::new();
    let x = g.input(TensorType::new([4, 2], DType::F32)).unwrap();
    let first = neg(&mut g, x);
    let seen = g.permute(x, &[1, 0]).unwrap();
    let one = g.constant(1.0, DType::F32).unwrap();
    let second = g.add(seen, one).unwrap();
    g.pin(second, Some(GPU));
    g.output(first);
    g.output(second);
    let input = storage(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
    let outputs = runtime.run(&g, &[input], Routing::AUTO).unwrap();
    let expected = [1.0, 3.0, 5.0, 7.0, 2.0, 4.0, 6.0, 8.0];
    assert_eq!(values(&runtime, &outputs[1]), expected);
    // Each device has one segment: nothing of the second part is on the first one's device.
    let used = runtime.used_devices();
    assert_eq!(used, [(GPU, 1), (DeviceType::Cpu, 1)]);
    // Results may also consist of inputs and constants alone.
    let mut g = Graph::new();
    let x = g.input(TensorType::new([2, 3], DType::F32)).unwrap();
    let seen = g.permute(x, &[1, 0]).unwrap();
    let one = g.constant(1.0, DType::F32).unwrap();
    for v in [seen, one, x] {
        g.output(v);
    }
    let input = storage(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    let outputs = runtime.run(&g, &[input], Routing::AUTO).unwrap();
    assert_eq!(
        values(&runtime, &outputs[0]),
        [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]
    );
    assert_eq!(values(&runtime, &outputs[1]), [1.0]);
}

#[test]
fn what_moves_data_goes_with_its_operand() {
    let runtime = mac();
    let mut g = Graph::new();
    let x = g.input(TensorType::new([MEDIUM], DType::F64)).unwrap();
    let y = neg(&mut g, x);
    let dtype = DType::F32;
    let y = g.push(rustorch_ir::ops::Cast { dtype }, &[y]).unwrap();
    g.output(y);
    let rows = explain(&runtime, &g, Routing::AUTO);
    let rows: Vec<_> = rows
        .iter()
        .map(|r| (r.op.as_str(), r.device, &r.reason[..]))
        .collect();
    let expected = [
        ("neg", METAL, "first in the chain"),
        ("cast", METAL, "where its neighbour is"),
    ];
    assert_eq!(rows, expected);
}

#[test]
fn candidates_are_able_and_not_lost() {
    let runtime = mac();
    let tensor = |dtype| TensorInfo::new(TensorType::new([MEDIUM], dtype));
    let devices = |op_type, dtype| runtime.candidates(op_type, &tensor(dtype), Routing::AUTO);
    let all = [COREML, METAL, DeviceType::Cpu];
    assert_eq!(devices(OpType::LinearAlgebra, DType::F32), all);
    assert_eq!(devices(OpType::Distribution, DType::F32), all[1..]);
    assert_eq!(devices(OpType::ComplexMath, DType::Complex64), all[1..]);
    assert!(devices(OpType::DistributedOps, DType::F32).is_empty());
    let custom = TensorInfo {
        custom_kernel: true,
        ..tensor(DType::F32)
    };
    let found = runtime.candidates(OpType::Reduction, &custom, Routing::AUTO);
    assert_eq!(found, all[1..]);
    assert!(runtime.has_gpu());
}

#[test]
fn capabilities_are_asked_of_the_device() {
    let gpu = Fake::gpu(GPU).without(&[OpKind::Random, OpKind::Matmul]);
    let runtime = Runtime::new([gpu.backend()]);
    let capability = runtime.capabilities().next().unwrap();
    assert_eq!(capability.device, GPU);
    assert_eq!(capability.memory_gb, Some((1u64 << 30) as f64 / 1e9));
    assert!(capability.supports_f16 && capability.supports_f64 && capability.supports_complex);
    assert!(!capability.supports_distributed);
    assert!(!capability.operations.contains(&OpType::Distribution));
    assert!(capability.operations.contains(&OpType::LinearAlgebra));
    let none: Vec<OpKind> = capability
        .with_support(rustorch_runtime::Support::None)
        .collect();
    // The processor has none for the others, which are made of others.
    assert_eq!(
        none,
        [
            OpKind::Random,
            OpKind::Offload,
            OpKind::Reload,
            OpKind::Matmul,
            OpKind::AttentionBackward,
            OpKind::Determinant,
            OpKind::LogDeterminant,
            OpKind::Adjugate,
            OpKind::PseudoInverse,
            OpKind::MaxPool2dBackward,
            OpKind::ChannelsLast,
            OpKind::BatchNorm,
            OpKind::CrossEntropyMean,
            OpKind::BatchNormTrain,
            OpKind::BatchNormBackward,
            OpKind::CachedAttention,
            OpKind::FusedNorm,
            OpKind::FusedExpertLinear,
            OpKind::TopKSoftmax,
            OpKind::Custom,
        ]
    );
}
