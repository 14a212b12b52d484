//! Choosing by what devices were measured to take.

use std::collections::HashMap;
use std::time::Duration;

use rustorch_ir::ops::{Linear, RmsNorm, UnaryOp};
use rustorch_ir::{DType, Graph, OpKind, TensorType};
use rustorch_runtime::{
    Bound, Costs, Curve, DeviceSelector, DeviceType, GpuExecutionStrategy, Hardware, OpCost,
    OpType, Preference, Reason, Routing, Runtime, TensorInfo,
};

use crate::fake::{Fake, cpu};
use crate::{GPU, choice, explain, graph, neg, on, storage, sum, values};

const CPU: DeviceType = DeviceType::Cpu;
const COREML: DeviceType = DeviceType::CoreML(0);

/// A line through the origin: so many seconds for one.
fn rate(seconds: f64) -> Curve {
    Curve::try_from(vec![(1.0, seconds)]).unwrap()
}

/// Costs of a device: `start` microseconds for a run, and nanoseconds for 1000 bytes of elementwise
/// operations or of transfers.
fn costs(start: u64, compute: f64, transfer: f64) -> Costs {
    let cost = |op, bound| OpCost {
        op,
        example: String::new(),
        dtype: DType::F32,
        bound,
        curve: rate(compute * 1e-12),
    };
    Costs {
        sync: Duration::from_micros(start),
        launch: Duration::ZERO,
        upload: rate(transfer * 1e-12),
        download: rate(transfer * 1e-12),
        operations: vec![
            cost(OpKind::Binary, Bound::Bytes),
            cost(OpKind::Unary, Bound::Bytes),
            cost(OpKind::Reduce, Bound::Bytes),
            cost(OpKind::Matmul, Bound::Macs),
        ],
    }
}

/// A processor that starts at once, and a GPU that is ten times as fast.
fn measured(transfer: f64) -> Runtime {
    let runtime = Runtime::new([cpu(), Fake::gpu(GPU).backend()]);
    runtime.set_costs(CPU, Some(costs(0, 1000.0, 0.0)));
    runtime.set_costs(GPU, Some(costs(100, 100.0, transfer)));
    runtime
}

/// The expected time of a graph on each device.
fn times(runtime: &Runtime, graph: Graph) -> HashMap<DeviceType, Duration> {
    let executable = runtime.prepare(graph, Routing::AUTO);
    let Preference { devices, reason } = executable.preference();
    match reason {
        Reason::Measured { here, others } => {
            others.into_iter().chain([(devices[0], here)]).collect()
        }
        other => panic!("{other:?}"),
    }
}

fn device(runtime: &Runtime, elements: usize) -> DeviceType {
    choice(runtime, &graph(elements, neg), Routing::AUTO).0
}

#[test]
fn the_device_with_the_least_time_is_chosen() {
    let runtime = measured(0.0);
    // 8 bytes an element: 80 µs on the processor, 108 µs on the GPU.
    let small = choice(&runtime, &graph(10_000, neg), Routing::AUTO);
    let why = "measured: 80.0 µs here, 108.0 µs on opencl:0".to_owned();
    assert_eq!(small, (CPU, why));
    // By the rules it would be too small.
    let large = choice(&runtime, &graph(100_000, neg), Routing::AUTO);
    let why = "measured: 180.0 µs here, 800.0 µs on cpu".to_owned();
    assert_eq!(large, (GPU, why));
    let candidates = |n: usize| {
        let info = TensorInfo::new(TensorType::new([n], DType::F32));
        runtime.candidates(OpType::Activation, &info, Routing::AUTO)
    };
    assert_eq!(candidates(10_000), [CPU, GPU]);
    assert_eq!(candidates(100_000), [GPU, CPU]);
}

#[test]
fn without_measurements_of_two_devices_the_rules_hold() {
    let runtime = measured(0.0);
    runtime.set_selector(DeviceSelector {
        compares: false,
        ..DeviceSelector::default()
    });
    assert_eq!(device(&runtime, 100_000), CPU);
    runtime.set_selector(DeviceSelector::default());
    assert_eq!(device(&runtime, 100_000), GPU);
    runtime.set_costs(GPU, None);
    let (device, why) = choice(&runtime, &graph(100_000, neg), Routing::AUTO);
    assert_eq!((device, &why[..]), (CPU, "too small for a GPU"));
}

/// In the Mac's hybrid Core ML and Metal are compared, and nobody else.
#[test]
fn the_mac_hybrid_goes_by_times_once_there_are_any() {
    let metal = DeviceType::Metal(0);
    let runtime = Runtime::new([
        cpu(),
        Fake::gpu(metal).backend(),
        Fake::new(COREML, Hardware::NeuralEngine).backend(),
    ]);
    let graph = graph(1 << 18, neg);
    let placed = || choice(&runtime, &graph, Routing::MAC_HYBRID);
    let rule = "mac hybrid: convolutions and activations".to_owned();
    assert_eq!(placed(), (COREML, rule.clone()));
    runtime.set_costs(CPU, Some(costs(0, 1.0, 0.0)));
    runtime.set_costs(metal, Some(costs(100, 100.0, 0.0)));
    assert_eq!(placed(), (COREML, rule.clone()));
    runtime.set_costs(COREML, Some(costs(1000, 100.0, 0.0)));
    let why = "measured: 309.7 µs here, 1.2 ms on coreml:0".to_owned();
    assert_eq!(placed(), (metal, why));
    // Times that are about the same leave it to the rules.
    runtime.set_costs(COREML, Some(costs(101, 100.0, 0.0)));
    assert_eq!(placed().0, COREML);
    runtime.set_costs(COREML, None);
    assert_eq!(placed(), (COREML, rule));
}

#[test]
fn bringing_operands_there_counts() {
    // 400 ns for 1000 of 800 000 bytes of operands: 0.58 ms on the GPU, then 2.26 ms.
    assert_eq!(device(&measured(400.0), 200_000), GPU);
    assert_eq!(device(&measured(2500.0), 200_000), CPU);
    // Inputs that stay the same are copied once.
    let mut g = Graph::new();
    let x = g.input(TensorType::new([200_000], DType::F32)).unwrap();
    let w = g.input(TensorType::new([200_000], DType::F32)).unwrap();
    let y = g.add(x, w).unwrap();
    g.output(y);
    let runtime = measured(1500.0);
    let devices = |fresh| {
        let executable = runtime.prepare(g.clone(), Routing::AUTO);
        executable.with_fresh_inputs(fresh).explain().unwrap()[0].device
    };
    assert_eq!((devices(2), devices(1), devices(0)), (CPU, GPU, GPU));
}

#[test]
fn a_result_draws_what_comes_next_to_its_device() {
    let runtime = measured(5000.0);
    let n = 200_000;
    let run = |g: &Graph, input| runtime.run(g, &[input], Routing::AUTO).unwrap();
    let ones = storage(&vec![1.0; n]);
    let here = run(&graph(n, neg), ones.clone());
    assert_eq!(runtime.device_of(&here[0]), CPU);
    // The same graph on what a GPU has computed: planned anew, for there it is cheaper.
    let mut pinned = graph(n, neg);
    pinned.pin(pinned.outputs()[0], Some(GPU));
    let there = run(&pinned, ones);
    assert_eq!(runtime.device_of(&there[0]), GPU);
    let next = run(&graph(n, neg), there[0].clone());
    assert_eq!(runtime.device_of(&next[0]), GPU);
    assert_eq!(values(&runtime, &next[0]), vec![1.0; n]);
    let next = run(&graph(n, neg), here[0].clone());
    assert_eq!(runtime.device_of(&next[0]), CPU);
}

#[test]
fn a_graph_stays_together() {
    // The last operation alone would be faster on the processor.
    let runtime = measured(0.0);
    let g = graph(200_000, |g, x| {
        let y = neg(g, x);
        let y = sum(g, y);
        neg(g, y)
    });
    let rows = explain(&runtime, &g, Routing::AUTO);
    assert!(rows.iter().all(|row| row.device == GPU), "{rows:?}");
}

#[test]
fn chains_are_charged_for_what_reaches_memory() {
    let runtime = measured(0.0);
    let time = |links: usize| {
        let g = graph(100_000, |g, x| (0..links).fold(x, |y, _| neg(g, y)));
        times(&runtime, g)[&CPU]
    };
    assert_eq!(time(1), time(8));
}

#[test]
fn a_function_that_was_measured_goes_by_its_own_time() {
    let runtime = Runtime::new([cpu(), Fake::gpu(GPU).backend()]);
    let cost = |example: &str, seconds| OpCost {
        op: OpKind::Unary,
        example: example.to_owned(),
        dtype: DType::F32,
        bound: Bound::Bytes,
        curve: rate(seconds),
    };
    // The GPU is fast, but for the error function.
    let with = |neg, erf| Costs {
        operations: vec![
            cost("Unary(Unary { op: Neg })", neg),
            cost("Unary(Unary { op: Erf })", erf),
        ],
        ..Costs::default()
    };
    runtime.set_costs(CPU, Some(with(3e-12, 5e-12)));
    runtime.set_costs(GPU, Some(with(1e-12, 9e-12)));
    let device = |op| {
        let g = graph(1000, |g, x| g.unary(op, x).unwrap());
        choice(&runtime, &g, Routing::AUTO).0
    };
    assert_eq!((device(UnaryOp::Neg), device(UnaryOp::Erf)), (GPU, CPU));
    // One that was not is taken for the first.
    assert_eq!(device(UnaryOp::Abs), GPU);
}

#[test]
fn products_go_by_bytes_or_by_multiplications() {
    let runtime = Runtime::new([cpu(), Fake::gpu(GPU).backend()]);
    let cost = |op, bound, seconds| OpCost {
        op,
        example: String::new(),
        dtype: DType::F32,
        bound,
        curve: rate(seconds),
    };
    // The processor is good at reading weights, the GPU at multiplying.
    let with = |bytes, macs| Costs {
        operations: vec![
            cost(OpKind::Linear, Bound::Bytes, bytes),
            cost(OpKind::Linear, Bound::Macs, macs),
        ],
        ..Costs::default()
    };
    runtime.set_costs(CPU, Some(with(1e-12, 1e-9)));
    runtime.set_costs(GPU, Some(with(3e-12, 1e-12)));
    let device = |rows: usize| {
        let mut g = Graph::new();
        let x = g.input(TensorType::new([rows, 256], DType::F32)).unwrap();
        let w = g.input(TensorType::new([512, 256], DType::F32)).unwrap();
        let y = g.push(Linear, &[x, w]).unwrap();
        g.output(y);
        choice(&runtime, &g, Routing::AUTO).0
    };
    assert_eq!((device(1), device(64)), (CPU, GPU));
}

#[test]
fn devices_that_were_not_measured_stay_where_the_rules_put_them() {
    let runtime = Runtime::new([
        cpu(),
        Fake::gpu(DeviceType::Metal(0)).backend(),
        Fake::gpu(GPU).backend(),
        Fake::new(COREML, Hardware::NeuralEngine).backend(),
    ]);
    let metal = DeviceType::Metal(0);
    runtime.set_costs(metal, Some(costs(500, 100.0, 0.0)));
    runtime.set_costs(GPU, Some(costs(100, 100.0, 0.0)));
    let info = TensorInfo::new(TensorType::new([1 << 19], DType::F32));
    let order = runtime.candidates(OpType::Activation, &info, Routing::AUTO);
    assert_eq!(order, [COREML, GPU, metal, CPU]);
    // About the same time: by the rules.
    runtime.set_costs(GPU, Some(costs(490, 100.0, 0.0)));
    let order = runtime.candidates(OpType::Activation, &info, Routing::AUTO);
    assert_eq!(order, [COREML, metal, GPU, CPU]);
}

#[test]
fn gpus_go_before_core_ml_whatever_the_size_and_the_times() {
    let metal = DeviceType::Metal(0);
    let runtime = Runtime::new([
        cpu(),
        Fake::gpu(metal).backend(),
        Fake::new(COREML, Hardware::NeuralEngine).backend(),
    ]);
    let order = |elements| {
        let info = TensorInfo::new(TensorType::new([elements], DType::F32));
        runtime.candidates(OpType::Activation, &info, Routing::AUTO)
    };
    runtime.set_selector(DeviceSelector::gpus_first());
    for (elements, expected) in [
        (64, [CPU, metal, COREML]),
        (1 << 20, [metal, COREML, CPU]),
        (1 << 27, [metal, COREML, CPU]),
    ] {
        assert_eq!(order(elements), expected, "{elements}");
    }
    // Between the others a calibration still decides.
    runtime.set_costs(COREML, Some(costs(0, 1.0, 0.0)));
    runtime.set_costs(metal, Some(costs(100, 100.0, 0.0)));
    assert_eq!(order(1 << 20), [metal, COREML, CPU]);
    runtime.set_costs(CPU, Some(costs(0, 10.0, 0.0)));
    assert_eq!(order(1 << 20)[0], CPU);
    let places = order(1 << 20);
    let at = |device| places.iter().position(|d| *d == device);
    assert!(at(metal) < at(COREML), "{places:?}");
}

#[test]
fn what_users_ask_for_goes_first() {
    let runtime = measured(0.0);
    let large = graph(200_000, neg);
    let asked = choice(&runtime, &large, on(CPU));
    assert_eq!(asked, (CPU, "cpu was asked for".to_owned()));
    let strategy = GpuExecutionStrategy::GpuOnly;
    let gpu_only = Routing {
        strategy,
        ..Routing::AUTO
    };
    assert_eq!(choice(&runtime, &graph(4, neg), gpu_only).0, GPU);
    runtime.set_route(OpKind::Unary, CPU);
    assert_eq!(choice(&runtime, &large, Routing::AUTO).0, CPU);
}

#[test]
fn a_detour_for_what_a_device_cannot_do_counts() {
    let runtime = Runtime::new([cpu(), Fake::gpu(GPU).without(&[OpKind::Reduce]).backend()]);
    let n = 200_000;
    let g = graph(n, |g, x| {
        let y = neg(g, x);
        let y = g.unary(UnaryOp::Exp, y).unwrap();
        sum(g, y)
    });
    runtime.set_costs(CPU, Some(costs(0, 1000.0, 0.0)));
    for (transfer, expected) in [(100.0, GPU), (3000.0, CPU)] {
        let costs = costs(10, 100.0, transfer);
        // Operands are there, so that only the way between the operations is new.
        runtime.set_costs(GPU, Some(costs));
        let executable = runtime.prepare(g.clone(), Routing::AUTO);
        let rows = executable.with_fresh_inputs(0).explain().unwrap();
        assert_eq!(rows[0].device, expected, "{rows:?}");
        assert_eq!(rows[rows.len() - 1].device, CPU, "{rows:?}");
    }
}

#[test]
fn what_is_made_of_others_costs_what_they_do() {
    let gpu = Fake::gpu(GPU).without(&[OpKind::RmsNorm]).backend();
    let runtime = Runtime::new([cpu(), gpu]);
    let mut g = Graph::new();
    let x = g.input(TensorType::new([200, 1000], DType::F32)).unwrap();
    let y = g.push(RmsNorm { eps: 1e-5.into() }, &[x]).unwrap();
    g.output(y);
    // Each launch of its parts costs the GPU what the processor takes for all.
    let launches = |launch| Costs {
        launch: Duration::from_micros(launch),
        ..Costs::default()
    };
    runtime.set_costs(CPU, Some(launches(10)));
    runtime.set_costs(GPU, Some(launches(9)));
    let times = times(&runtime, g);
    assert_eq!(times[&CPU], Duration::from_micros(10));
    assert!(times[&GPU] >= Duration::from_micros(3 * 9), "{times:?}");
}

#[test]
fn what_is_measured_is_known() {
    let runtime = Runtime::new([cpu()]);
    let mut told = Vec::new();
    let effort = Duration::from_micros(1);
    let measured = runtime.measure(&[CPU], effort, |done, all| told.push((done, all)));
    let [(CPU, costs)] = &measured.unwrap()[..] else {
        panic!("one device")
    };
    let (first, last) = (told[0], told[told.len() - 1]);
    assert!(first.0 == 0 && last.0 == last.1, "{told:?}");
    for op in [
        OpKind::Binary,
        OpKind::Softmax,
        OpKind::Matmul,
        OpKind::Linear,
        OpKind::Conv2d,
    ] {
        let known = costs.operations.iter().find(|cost| cost.op == op);
        assert!(
            known.is_some_and(|cost| !cost.curve.points().is_empty()),
            "{op:?}"
        );
    }
    assert!(!costs.upload.points().is_empty() && !costs.download.points().is_empty());
    assert!(
        runtime.costs(CPU).is_none(),
        "measuring alone changes nothing"
    );
    let missing = runtime.measure(&[DeviceType::Cuda(7)], effort, |_, _| ());
    assert!(missing.is_err());
}
