//! The cache of plans: what is planned again, and why.

use rustorch_ir::ops::{Concat, UnaryOp};
use rustorch_ir::{DType, Graph, TensorType, ValueId};
use rustorch_runtime::{DeviceType, FailureClass, PlanCounters, Routing, Runtime};

use crate::fake::{Fake, cpu};
use crate::{GPU, graph, neg, on, storage};

fn run(runtime: &Runtime, elements: usize, routing: Routing) {
    let inputs = [storage(&vec![1.0; elements])];
    runtime
        .run(&graph(elements, neg), &inputs, routing)
        .unwrap();
}

/// How often graphs were planned: for the first time, evicted, outdated, failed; and reused.
fn counts(runtime: &Runtime) -> [u64; 5] {
    let PlanCounters {
        new,
        evicted,
        outdated,
        failed,
        reused,
        ..
    } = runtime.plans();
    [new, evicted, outdated, failed, reused]
}

#[test]
fn a_graph_is_planned_again_when_what_decides_has_changed() {
    let runtime = Runtime::new([cpu(), Fake::gpu(GPU).backend()]);
    run(&runtime, 4, Routing::AUTO);
    run(&runtime, 4, Routing::AUTO);
    assert_eq!(counts(&runtime), [1, 0, 0, 0, 1]);
    runtime.set_route(rustorch_ir::OpKind::Unary, GPU);
    run(&runtime, 4, Routing::AUTO);
    run(&runtime, 4, Routing::AUTO);
    assert_eq!(counts(&runtime), [1, 0, 1, 0, 3]);
    assert_eq!(runtime.used_devices().len(), 2);
    // Another size, another device asked for: other plans.
    run(&runtime, 5, Routing::AUTO);
    run(&runtime, 5, on(DeviceType::Cpu));
    assert_eq!(counts(&runtime), [3, 0, 1, 0, 3]);
    assert_eq!(runtime.plans().kept, 3);
}

#[test]
fn a_failure_makes_another_plan() {
    let gpu = Fake::gpu(GPU);
    let state = gpu.state();
    let runtime = Runtime::new([gpu.backend(), cpu()]);
    let full = FailureClass::OutOfMemory { never_fits: false };
    state.failures.lock().unwrap().push_back(full);
    run(&runtime, 4, on(GPU));
    assert_eq!(counts(&runtime), [1, 0, 0, 1, 0]);
    // Plans that were given up to free memory count as well.
    run(&runtime, 4, on(GPU));
    assert_eq!(counts(&runtime), [1, 1, 0, 1, 0]);
}

#[test]
fn plans_are_bounded_by_their_bytes() {
    let runtime = Runtime::new([cpu()]);
    run(&runtime, 1, Routing::AUTO);
    let one = runtime.plans().bytes;
    assert!(one > 0);
    runtime.set_plan_limit(10 * one);
    for elements in 1..=100 {
        run(&runtime, elements, Routing::AUTO);
        // The first one is used again and again, and stays.
        run(&runtime, 1, Routing::AUTO);
        let PlanCounters { kept, bytes, .. } = runtime.plans();
        assert_eq!((kept, bytes), (elements.min(10), elements.min(10) * one));
    }
    assert_eq!(counts(&runtime), [100, 0, 0, 0, 101]);
    for elements in 92..=100 {
        run(&runtime, elements, Routing::AUTO);
    }
    assert_eq!(counts(&runtime), [100, 0, 0, 0, 110]);
    run(&runtime, 2, Routing::AUTO);
    assert_eq!(counts(&runtime), [100, 1, 0, 0, 110]);
}

#[test]
fn what_programs_keep_counts() {
    let runtime = Runtime::new([cpu()]);
    let bytes = |elements| {
        // The middle is needed in two orders, and is kept in between.
        let graph = graph(elements, |g, x| {
            let middle = g.unary(UnaryOp::Exp, x).unwrap();
            let square = g.reshape(middle, [2, elements / 2]).unwrap();
            let turned = g.permute(square, &[1, 0]).unwrap();
            let turned = g.reshape(turned, [elements]).unwrap();
            g.add(middle, turned).unwrap()
        });
        let before = runtime.plans().bytes;
        let inputs = [storage(&vec![1.0; elements])];
        runtime.run(&graph, &inputs, Routing::AUTO).unwrap();
        runtime.plans().bytes - before
    };
    let (small, large) = (bytes(16), bytes(1 << 16));
    assert!(large >= small + 4 * ((1 << 16) - 64), "{small} {large}");
}

#[test]
fn inputs_count_as_operations_do() {
    let runtime = Runtime::new([cpu()]);
    let bytes = |count| {
        let mut graph = Graph::new();
        let ty = TensorType::new([1], DType::F32);
        let inputs = (0..count).map(|_| graph.input(ty.clone()).unwrap());
        let inputs: Vec<ValueId> = inputs.collect();
        let joined = graph.push(Concat { dim: 0 }, &inputs).unwrap();
        graph.output(joined);
        let before = runtime.plans().bytes;
        let storages = vec![storage(&[1.0]); count];
        runtime.run(&graph, &storages, Routing::AUTO).unwrap();
        runtime.plans().bytes - before
    };
    let (few, many) = (bytes(2), bytes(102));
    assert!(many >= few + 100 * 1024, "{few} {many}");
}
