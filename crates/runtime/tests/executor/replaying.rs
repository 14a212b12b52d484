//! Runs that follow others.

use std::time::Duration;

use rustorch_runtime::{Costs, DeviceType, FailureClass, Routing, RunError, Runtime};

use crate::fake::{Fake, cpu};
use crate::{GPU, graph, neg, on, storage, sum, values};

#[test]
fn results_nobody_holds_are_overwritten() {
    for device in [DeviceType::Cpu, GPU] {
        let runtime = Runtime::new([cpu(), Fake::gpu(GPU).backend()]);
        let executable = runtime.prepare(graph(4, neg), on(device));
        let mut outputs = Vec::new();
        let run = |x: f32, outputs: &mut Vec<_>| {
            executable
                .run_into(&[&[storage(&[x; 4])]], outputs)
                .unwrap();
            assert_eq!(values(&runtime, &outputs[0]), [-x; 4]);
            outputs[0].id()
        };
        let first = run(1.0, &mut outputs);
        assert_eq!(run(2.0, &mut outputs), first);
        // Held by somebody: left alone.
        let held = outputs[0].clone();
        assert_ne!(run(3.0, &mut outputs), first);
        assert_eq!(values(&runtime, &held), [-2.0; 4]);
    }
}

#[test]
fn inputs_that_are_written_again_take_no_memory() {
    let gpu = Fake::gpu(GPU);
    let state = gpu.state();
    let runtime = Runtime::new([gpu.backend(), cpu()]);
    let executable = runtime.prepare(graph(4, neg), on(GPU));
    let (input, mut outputs) = (storage(&[1.0; 4]), Vec::new());
    let inputs = [input];
    for x in [2.0_f32, 3.0, 4.0] {
        let bytes: Vec<u8> = [x; 4].into_iter().flat_map(f32::to_ne_bytes).collect();
        runtime.write(&inputs[0], &bytes).unwrap();
        executable.run_into(&[&inputs], &mut outputs).unwrap();
        assert_eq!(values(&runtime, &outputs[0]), [-x; 4]);
        // The next allocation fails.
        let full = FailureClass::OutOfMemory { never_fits: false };
        *state.refusals.lock().unwrap() = [full].into();
    }
    assert!(runtime.fallbacks().is_empty());
    assert_eq!(runtime.memory().pools()[0].in_use, 2 * 16);
}

#[test]
fn a_result_can_be_the_next_input() {
    let runtime = Runtime::new([cpu()]);
    let executable = runtime.prepare(graph(2, neg), Routing::AUTO);
    let mut x = storage(&[1.0, -2.0]);
    let mut outputs = Vec::new();
    for _ in 0..3 {
        executable.run_into(&[&[x]], &mut outputs).unwrap();
        x = outputs[0].clone();
    }
    assert_eq!(values(&runtime, &x), [-1.0, 2.0]);
}

#[test]
fn inputs_come_in_lists() {
    let runtime = Runtime::new([cpu()]);
    let mut g = rustorch_ir::Graph::new();
    let ty = || rustorch_ir::TensorType::new([1], rustorch_ir::DType::F32);
    let [a, b, c] = [0; 3].map(|_| g.input(ty()).unwrap());
    let y = g.sub(a, b).unwrap();
    let y = g.mul(y, c).unwrap();
    g.output(y);
    let executable = runtime.prepare(g, Routing::AUTO);
    let inputs = [7.0, 3.0, 2.0].map(|x| storage(&[x]));
    let mut outputs = Vec::new();
    for cut in 0..=3 {
        let (first, rest) = inputs.split_at(cut);
        executable
            .run_into(&[first, &[], rest], &mut outputs)
            .unwrap();
        assert_eq!(values(&runtime, &outputs[0]), [8.0]);
    }
    let error = executable
        .run_into(&[&inputs[..2]], &mut outputs)
        .unwrap_err();
    assert_eq!(
        error,
        RunError::WrongInput {
            input: 2,
            expected: 4,
            got: 0
        }
    );
    assert!(outputs.is_empty());
}

#[test]
fn results_of_single_runs_are_given_away() {
    let runtime = Runtime::new([Fake::gpu(GPU).backend()]);
    let pool = || runtime.memory().pools()[0].in_use;
    let outputs = runtime.run(&graph(4, neg), &[storage(&[0.0; 4])], Routing::AUTO);
    assert_eq!(pool(), 16);
    drop(outputs);
    assert_eq!(pool(), 0);
}

#[test]
fn times_are_told_when_asked_for() {
    let runtime = Runtime::new([cpu(), Fake::gpu(GPU).backend()]);
    for device in [DeviceType::Cpu, GPU] {
        let g = graph(1000, |g, x| {
            let y = neg(g, x);
            sum(g, y)
        });
        let executable = runtime.prepare(g, on(device));
        let input = [storage(&[1.0; 1000])];
        executable.run(&input).unwrap();
        let rows = executable.explain().unwrap();
        assert!(
            rows.iter()
                .all(|row| row.measured.is_none() && row.expected.is_none())
        );
        runtime.set_profiling(true);
        executable.run(&input).unwrap();
        executable.run(&input).unwrap();
        runtime.set_profiling(false);
        let rows = executable.explain().unwrap();
        assert!(rows.iter().any(|row| row.measured.is_some()), "{rows:?}");
    }
    let costs = Costs {
        launch: Duration::from_micros(3),
        ..Costs::default()
    };
    runtime.set_costs(DeviceType::Cpu, Some(costs));
    let expected = |device| {
        let executable = runtime.prepare(graph(1 << 20, neg), on(device));
        executable.explain().unwrap()[0].expected
    };
    assert_eq!(expected(DeviceType::Cpu), Some(Duration::from_micros(3)));
    assert_eq!(expected(GPU), None);
}
