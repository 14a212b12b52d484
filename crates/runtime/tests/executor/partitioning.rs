//! Graphs in parts on several devices.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustorch_ir::ops::{Assign, ReduceOp, UnaryOp};
use rustorch_ir::{DType, Graph, OpKind, TensorType, ValueId};
use rustorch_runtime::{
    Bound, Compilation, Costs, Curve, DeviceType, Estimate, Executable, OpCost, Routing, Runtime,
};

use crate::fake::{Fake, State, cpu};
use crate::{GPU, explain, graph, graphs, neg, on, storage, values};

const CPU: DeviceType = DeviceType::Cpu;

/// Factor by which a split or another device has to be better.
const TIE: f64 = 1.05;

fn rate(seconds: f64) -> Curve {
    Curve::try_from(vec![(1.0, seconds)]).unwrap()
}

/// Costs of a device: `start` microseconds for a run, `transfer` picoseconds for each byte moved to
/// it or back, and `operations` in picoseconds.
fn costs(start: u64, transfer: f64, operations: &[(OpKind, Bound, f64)]) -> Costs {
    let cost = |&(op, bound, seconds): &(OpKind, Bound, f64)| OpCost {
        op,
        example: String::new(),
        dtype: DType::F32,
        bound,
        curve: rate(seconds * 1e-12),
    };
    Costs {
        sync: Duration::from_micros(start),
        launch: Duration::from_micros(1),
        upload: rate(transfer * 1e-12),
        download: rate(transfer * 1e-12),
        operations: operations.iter().map(cost).collect(),
    }
}

/// A processor that is good at all but products, and a GPU that is good at those.
fn specialists(transfer: f64) -> Runtime {
    let runtime = Runtime::new([cpu(), Fake::gpu(GPU).backend()]);
    let with = |bytes, macs| {
        [
            (OpKind::Unary, Bound::Bytes, bytes),
            (OpKind::Matmul, Bound::Macs, macs),
        ]
    };
    runtime.set_costs(CPU, Some(costs(0, 0.0, &with(10.0, 100.0))));
    runtime.set_costs(GPU, Some(costs(20, transfer, &with(1000.0, 1.0))));
    runtime
}

/// Functions of a product, and a product of that.
fn mixed() -> Graph {
    let mut g = Graph::new();
    let ty = TensorType::new([256, 256], DType::F32);
    let [x, w] = [(); 2].map(|()| g.input(ty.clone()).unwrap());
    let y = g.matmul(x, w).unwrap();
    let y = (0..6).fold(y, |y, _| neg(&mut g, y));
    let y = g.matmul(y, w).unwrap();
    g.output(y);
    g
}

fn estimate(executable: &Executable) -> (Duration, Duration, usize) {
    let Estimate {
        planned,
        segments,
        alone,
    } = executable.estimate().unwrap().unwrap();
    let best = alone.into_iter().map(|(_, time)| time).min().unwrap();
    (planned, best, segments)
}

#[test]
fn a_graph_goes_in_parts_where_that_takes_less() {
    let runtime = specialists(10.0);
    let executable = runtime.prepare(mixed(), Routing::AUTO);
    let (planned, best, segments) = estimate(&executable);
    assert_eq!(segments, 3);
    assert!(planned.mul_f64(TIE) < best, "{planned:?} of {best:?}");
    let rows = executable.explain().unwrap();
    let places: Vec<_> = rows.iter().map(|row| (&row.op[..], row.device)).collect();
    assert_eq!(places, [("matmul", GPU), ("neg", CPU)]);
    // The reason names the choice and its alternatives, best first.
    let why = &rows[0].reason;
    assert!(why.starts_with("measured: "), "{why}");
    assert!(why.contains(" in 3 segments, "), "{why}");
    assert!(
        why.contains(" on cpu") && why.contains(" on opencl:0"),
        "{why}"
    );
    // Parts give the same results as one device.
    let x: Vec<f32> = (0..256 * 256).map(|i| (i % 7) as f32 - 3.0).collect();
    let inputs = [storage(&x), storage(&x)];
    let run = |routing| {
        let outputs = runtime.run(&mixed(), &inputs, routing).unwrap();
        values(&runtime, &outputs[0])
    };
    assert_eq!(run(Routing::AUTO), run(on(CPU)));
}

#[test]
fn a_graph_stays_whole_where_boundaries_cost_more_than_they_save() {
    // 256 KiB there and back: 2 times 26 ms.
    let runtime = specialists(100_000.0);
    let executable = runtime.prepare(mixed(), Routing::AUTO);
    let (planned, best, segments) = estimate(&executable);
    assert_eq!((planned, segments), (best, 1));
    let why = &executable.explain().unwrap()[0].reason;
    assert!(!why.contains("segments"), "{why}");
}

#[test]
fn in_strict_mode_a_graph_stays_whole() {
    let runtime = specialists(10.0);
    let rows = explain(&runtime, &mixed(), crate::strict(Routing::AUTO));
    assert!(
        rows.iter().all(|row| row.device == rows[0].device),
        "{rows:?}"
    );
}

#[test]
fn a_state_stays_with_who_updates_it() {
    // The product would be faster on the GPU, but for the state that it reads, which is new in
    // every run.
    let runtime = specialists(100_000.0);
    let devices = |updates: bool| {
        let mut g = Graph::new();
        let [state, x] = [[512, 512], [64, 512]].map(|shape| {
            let ty = TensorType::new(shape, DType::F32);
            g.input(ty).unwrap()
        });
        let y = g.matmul(x, state).unwrap();
        let mut new = (0..40).fold(state, |new, _| neg(&mut g, new));
        if updates {
            new = g.push(Assign, &[state, new]).unwrap();
        }
        g.output(y);
        g.output(new);
        let executable = runtime.prepare(g, Routing::AUTO).with_fresh_inputs(0);
        let rows = executable.explain().unwrap();
        let device = |ops: &[&str]| {
            let mut rows = rows.iter();
            rows.find(|row| ops.contains(&&*row.op)).unwrap().device
        };
        // The update may be fused with the operation before it.
        [device(&["matmul"]), device(&["neg", "foreach"])]
    };
    assert_eq!(devices(false), [GPU, CPU]);
    assert_eq!(devices(true), [CPU, CPU]);
}

/// Numbers as they may come, from 0 to 1.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 40) as f64 / (1u64 << 24) as f64
    }

    /// Up to `spread` times one or as small a part of it.
    fn about_one(&mut self, spread: f64) -> f64 {
        spread.powf(2.0 * self.next() - 1.0)
    }
}

/// A device of about the speed of `operations`.
fn some_device(random: &mut Random, start: u64, transfer: f64) -> Costs {
    let typical = [
        (OpKind::Binary, Bound::Bytes, 50.0),
        (OpKind::Unary, Bound::Bytes, 100.0),
        (OpKind::Reduce, Bound::Bytes, 100.0),
        (OpKind::Softmax, Bound::Bytes, 300.0),
        (OpKind::Concat, Bound::Bytes, 100.0),
        (OpKind::Scan, Bound::Bytes, 400.0),
        (OpKind::Matmul, Bound::Macs, 20.0),
        (OpKind::Conv2d, Bound::Macs, 30.0),
        (OpKind::Attention, Bound::Macs, 50.0),
    ];
    let operations = typical.map(|(op, bound, time)| (op, bound, time * random.about_one(8.0)));
    costs(start, transfer * random.about_one(10.0), &operations)
}

#[test]
fn no_placement_takes_longer_than_the_best_device_alone() {
    let mut random = Random(7);
    let (mut split, mut moved) = (0, 0);
    for _ in 0..8 {
        let runtime = Runtime::new([cpu(), Fake::gpu(GPU).backend()]);
        runtime.set_costs(CPU, Some(some_device(&mut random, 2, 0.0)));
        runtime.set_costs(GPU, Some(some_device(&mut random, 15, 50.0)));
        for graphs::Case { name, graph, fresh } in graphs::all() {
            let executable = runtime.prepare(graph, Routing::AUTO);
            let executable = executable.with_fresh_inputs(fresh);
            let (planned, best, segments) = estimate(&executable);
            let most = best.mul_f64(TIE) + Duration::from_nanos(1);
            assert!(planned <= most, "{name}: {planned:?}, alone {best:?}");
            split += usize::from(segments > 1);
            moved += usize::from(executable.explain().unwrap()[0].device == GPU);
        }
    }
    // All kinds of answers came up.
    assert!(split > 20 && moved > 20, "{split} {moved}");
}

#[test]
fn where_operations_follow_one_another_no_placement_takes_less() {
    const KINDS: [UnaryOp; 3] = [UnaryOp::Neg, UnaryOp::Exp, UnaryOp::Sin];
    let mut random = Random(3);
    for _ in 0..20 {
        let runtime = Runtime::new([cpu(), Fake::gpu(GPU).backend()]);
        runtime.set_costs(CPU, Some(some_device(&mut random, 5, 0.0)));
        runtime.set_costs(GPU, Some(some_device(&mut random, 10, 20.0)));
        // Reductions and scans between, so that nothing is fused.
        let mut g = Graph::new();
        let x = g.input(TensorType::new([256, 256], DType::F32)).unwrap();
        let mut nodes: Vec<ValueId> = Vec::new();
        for at in 0..7 {
            let x = nodes.last().copied().unwrap_or(x);
            nodes.push(match (random.next() * 3.0) as usize {
                0 => g.unary(KINDS[at % 3], x).unwrap(),
                1 => g.matmul(x, x).unwrap(),
                _ => {
                    let op = rustorch_ir::ops::Softmax { dim: 1, log: false };
                    g.push(op, &[x]).unwrap()
                }
            });
        }
        g.output(nodes[6]);
        let time = |g: &Graph| estimate(&runtime.prepare(g.clone(), Routing::AUTO)).0;
        let planned = time(&g);
        let every = (0..1 << nodes.len()).map(|bits: usize| {
            let mut pinned = g.clone();
            for (at, &node) in nodes.iter().enumerate() {
                let device = [CPU, GPU][bits >> at & 1];
                pinned.pin(node, Some(device));
            }
            time(&pinned)
        });
        let best = every.min().unwrap();
        let most = best.mul_f64(TIE) + Duration::from_nanos(1);
        assert!(planned <= most, "{planned:?}, at best {best:?}");
    }
}

/// A device on which compiling takes long, beside the processor, without kernels for sums.
fn slow(least_operations: usize) -> (Runtime, Arc<State>) {
    let compilation = Compilation {
        program: Duration::from_secs(20),
        least_operations,
    };
    let lacks = [OpKind::Reduce];
    let gpu = Fake::gpu(GPU).without(&lacks).compiling_slowly(compilation);
    let state = gpu.state();
    (Runtime::new([gpu.backend(), cpu()]), state)
}

/// Sums along rows that are written to all columns, with so many functions before each.
fn alternating(functions: &[usize]) -> Graph {
    graph(1 << 19, |g, x| {
        let mut y = g.reshape(x, [1 << 10, 1 << 9]).unwrap();
        for &count in functions {
            y = (0..count).fold(y, |y, _| neg(g, y));
            y = g.reduce(ReduceOp::Sum, y, 1).unwrap();
            y = g.reshape(y, [1 << 10, 1]).unwrap();
            y = g.broadcast(y, [1 << 10, 1 << 9]).unwrap();
        }
        neg(g, y)
    })
}

fn segments(runtime: &Runtime, graph: &Graph, routing: Routing) -> u64 {
    let ones = [storage(&vec![1.0; 1 << 19])];
    runtime.run(graph, &ones, routing).unwrap();
    runtime.wait_for_compilation();
    let count = || -> u64 { runtime.used_devices().iter().map(|(_, runs)| runs).sum() };
    let before = count();
    runtime.run(graph, &ones, routing).unwrap();
    count() - before
}

#[test]
fn unsupported_operations_in_turns_do_not_make_a_program_each() {
    let turns = alternating(&[1; 87]);
    for routing in [Routing::AUTO, on(GPU)] {
        let (runtime, state) = slow(8);
        assert_eq!(segments(&runtime, &turns, routing), 1);
        assert_eq!(state.compiled.load(Ordering::SeqCst), 0);
        let rows = explain(&runtime, &turns, routing);
        let why = "opencl:0: a segment of 1 of the 8 operations that it takes";
        assert!(rows.iter().any(|row| row.reason == why), "{rows:?}");
    }
    // Segments that are long enough are compiled.
    let parts = alternating(&[20, 1, 1, 1, 20, 1, 1, 1]);
    let (runtime, state) = slow(8);
    assert_eq!(segments(&runtime, &parts, on(GPU)), 4);
    assert_eq!(state.compiled.load(Ordering::SeqCst), 2);
    // Without a least size, or with a route to the device, all segments are compiled.
    for least in [1, 8] {
        let (runtime, state) = slow(least);
        if least > 1 {
            runtime.set_route(OpKind::Unary, GPU);
        }
        assert_eq!(segments(&runtime, &parts, on(GPU)), 17);
        assert_eq!(state.compiled.load(Ordering::SeqCst), 9);
    }
}

#[test]
fn compiling_counts_where_devices_were_measured() {
    let turns = alternating(&[1; 87]);
    let with = |bytes| {
        [
            (OpKind::Unary, Bound::Bytes, bytes),
            (OpKind::Reduce, Bound::Bytes, bytes),
        ]
    };
    // Each function is 1 ms faster there, but a program takes 20 s.
    let (runtime, state) = slow(1);
    runtime.set_costs(CPU, Some(costs(0, 0.0, &with(300.0))));
    runtime.set_costs(GPU, Some(costs(1, 1.0, &with(3.0))));
    assert_eq!(segments(&runtime, &turns, Routing::AUTO), 1);
    assert_eq!(state.compiled.load(Ordering::SeqCst), 0);
}

#[test]
fn what_only_a_slow_compiler_can_do_is_compiled() {
    let compilation = Compilation {
        program: Duration::from_secs(20),
        least_operations: 8,
    };
    let gpu = Fake::gpu(GPU).compiling_slowly(compilation);
    let state = gpu.state();
    let runtime = Runtime::new([gpu.backend()]);
    let outputs = runtime
        .run(&graph(4, neg), &[storage(&[1.0; 4])], Routing::AUTO)
        .unwrap();
    assert_eq!(values(&runtime, &outputs[0]), [-1.0; 4]);
    assert_eq!(state.compiled.load(Ordering::SeqCst), 1);
}
