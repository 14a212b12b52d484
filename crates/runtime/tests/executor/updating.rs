//! States that are updated from what they were.

use rustorch_ir::ops::{Assign, UnaryOp};
use rustorch_ir::{DType, Graph, TensorType, ValueId};
use rustorch_runtime::{DeviceType, FailureClass, Routing, RunError, Runtime, Storage};

use crate::fake::{Fake, State, cpu};
use crate::{GPU, on, storage, values};

/// Adds `update` of a state `[4]` and an input `[4]` to a graph that writes it over the state.
fn step(update: impl FnOnce(&mut Graph, ValueId, ValueId) -> ValueId) -> Graph {
    let mut g = Graph::new();
    let ty = TensorType::new([4], DType::F32);
    let (state, x) = (g.input(ty.clone()).unwrap(), g.input(ty).unwrap());
    let new = update(&mut g, state, x);
    let state = g.push(Assign, &[state, new]).unwrap();
    g.output(state);
    g
}

fn counter() -> Graph {
    step(|g, state, _| g.add_scalar(state, 1.0).unwrap())
}

#[test]
fn a_counter_a_running_mean_and_a_step_of_sgd_replay() {
    let running_mean = step(|g, state, x| {
        let old = g.mul_scalar(state, 0.75).unwrap();
        let new = g.mul_scalar(x, 0.25).unwrap();
        g.add(old, new).unwrap()
    });
    // x² has the gradient 2x.
    let sgd = step(|g, state, _| {
        let gradient = g.mul_scalar(state, 2.0).unwrap();
        let change = g.mul_scalar(gradient, 0.125).unwrap();
        g.sub(state, change).unwrap()
    });
    let runtime = Runtime::new([Fake::gpu(GPU).backend(), cpu()]);
    for (graph, expected) in [
        (counter(), [104.0; 4]),
        (
            running_mean,
            [100.0 * 0.75_f32.powi(4) + 8.0 * (1.0 - 0.75_f32.powi(4)); 4],
        ),
        (sgd, [100.0 * 0.75_f32.powi(4); 4]),
    ] {
        let (state, x) = (storage(&[100.0; 4]), storage(&[8.0; 4]));
        let executable = runtime.prepare(graph, on(GPU));
        for _ in 0..4 {
            let outputs = executable.run(&[state.clone(), x.clone()]).unwrap();
            assert!(outputs[0].same_as(&state));
        }
        assert_eq!(values(&runtime, &state), expected);
    }
}

/// A counter on a GPU that fails, and what is left: the state where the processor went on.
fn counted(fail: impl Fn(&State)) -> (Runtime, Storage, Result<(), RunError>) {
    let gpu = Fake::gpu(GPU);
    fail(&gpu.state);
    let runtime = Runtime::new([gpu.backend(), cpu()]);
    let state = storage(&[5.0; 4]);
    let executable = runtime.prepare(counter(), on(GPU));
    let ran = executable.run(&[state.clone(), storage(&[0.0; 4])]);
    (runtime, state, ran.map(|_| ()))
}

#[test]
fn what_fails_before_the_update_goes_on_elsewhere() {
    for class in [
        FailureClass::Unsupported,
        FailureClass::OutOfMemory { never_fits: true },
        FailureClass::Lost,
    ] {
        let (runtime, state, ran) = counted(|gpu| gpu.failures.lock().unwrap().push_back(class));
        ran.unwrap();
        assert_eq!(values(&runtime, &state), [6.0; 4], "{class}");
        assert_eq!(state.last_writer(), DeviceType::Cpu);
    }
}

#[test]
fn what_fails_in_the_update_loses_the_state() {
    let (runtime, state, ran) = counted(|gpu| {
        gpu.failures_behind
            .lock()
            .unwrap()
            .push_back(FailureClass::OutOfMemory { never_fits: true })
    });
    let Err(RunError::DataLost {
        input: 0,
        during: Some(error),
    }) = ran
    else {
        panic!("{ran:?}");
    };
    assert_eq!(error.device, GPU);
    // Nobody reads numbers that may be either.
    let mut bytes = [0; 16];
    assert!(matches!(
        runtime.read(&state, 0, &mut bytes),
        Err(RunError::DataLost { .. })
    ));
    assert_eq!(runtime.memory().faults().of(GPU), 1);
    // Made again, it counts on.
    runtime
        .write(&state, &[5.0_f32; 4].map(f32::to_ne_bytes).concat())
        .unwrap();
    let executable = runtime.prepare(counter(), Routing::AUTO);
    executable
        .run(&[state.clone(), storage(&[0.0; 4])])
        .unwrap();
    assert_eq!(values(&runtime, &state), [6.0; 4]);
}

#[test]
fn updates_come_last() {
    // The counter is written down first, but what can fail is done before it is launched.
    let mut g = Graph::new();
    let ty = TensorType::new([4], DType::F32);
    let (state, x) = (g.input(ty.clone()).unwrap(), g.input(ty).unwrap());
    let more = g.add_scalar(state, 1.0).unwrap();
    let new = g.push(Assign, &[state, more]).unwrap();
    let after = g.unary(UnaryOp::Neg, new).unwrap();
    let other = g.unary(UnaryOp::Exp, x).unwrap();
    for value in [new, after, other] {
        g.output(value);
    }
    let runtime = Runtime::new([cpu()]);
    let executable = runtime.prepare(g, Routing::AUTO);
    let (planned, _) = executable.placement().unwrap();
    let names: Vec<&str> = planned.nodes().iter().map(|node| node.op.name()).collect();
    assert_eq!(names, ["unary", "foreach", "unary"]);
    let outputs = executable
        .run(&[storage(&[1.0; 4]), storage(&[0.0; 4])])
        .unwrap();
    let read = |i: usize| values(&runtime, &outputs[i]);
    assert_eq!([read(0), read(1), read(2)], [[2.0; 4], [-2.0; 4], [1.0; 4]]);
}
