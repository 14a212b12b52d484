//! Programs that are compiled while other devices serve. The compiler of these devices takes as
//! long as a test keeps its gate closed.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustorch_ir::ops::{Assign, UpdateSlice};
use rustorch_ir::{DType, Graph, TensorType};
use rustorch_runtime::{
    Compilation, DeviceType, Executable, FailureClass, Fallback, Routing, Runtime, Storage,
};

use crate::fake::{Fake, State, cpu};
use crate::{GPU, graph, neg, on, storage, strict, sum, values};

const CPU: DeviceType = DeviceType::Cpu;

const SLOW: Compilation = Compilation {
    program: Duration::from_secs(20),
    least_operations: 2,
};

fn slow_gpu() -> (Fake, Arc<State>) {
    let gpu = Fake::gpu(GPU).compiling_slowly(SLOW);
    let state = gpu.state();
    state.gate.close();
    (gpu, state)
}

/// A device that compiles slowly, before the processor.
fn pair() -> (Runtime, Arc<State>) {
    let (gpu, state) = slow_gpu();
    (Runtime::new([gpu.backend(), cpu()]), state)
}

fn two_operations() -> Graph {
    graph(4, |g, x| {
        let y = neg(g, x);
        sum(g, y)
    })
}

/// The device that computed the sum of four numbers, which is right.
fn run(runtime: &Runtime, executable: &Executable) -> DeviceType {
    let outputs = executable.run(&[storage(&[1.0, 2.0, 3.0, 4.0])]).unwrap();
    assert_eq!(values(runtime, &outputs[0]), [-10.0]);
    runtime.device_of(&outputs[0])
}

fn compiled(state: &State) -> usize {
    state.compiled.load(Ordering::SeqCst)
}

/// Lets the compiler end, and waits for it.
fn finish(runtime: &Runtime, state: &State) {
    state.gate.open();
    runtime.wait_for_compilation();
}

#[test]
fn the_next_device_serves_until_a_program_is_compiled() {
    let (runtime, state) = pair();
    let executable = runtime.prepare(two_operations(), on(GPU));
    for _ in 0..3 {
        assert_eq!(run(&runtime, &executable), CPU);
    }
    let rows = executable.explain().unwrap();
    let why = "opencl:0: being compiled in the background";
    assert!(rows.iter().all(|row| row.reason == why), "{rows:?}");
    assert_eq!(compiled(&state), 0);
    finish(&runtime, &state);
    for _ in 0..3 {
        assert_eq!(run(&runtime, &executable), GPU);
    }
    assert_eq!(compiled(&state), 1);
    let plans = runtime.plans();
    assert_eq!((plans.new, plans.compiled, plans.failed), (1, 1, 0));
    assert!(runtime.fallbacks().is_empty());
    // A change of routes plans the graph anew, with the same program.
    runtime.set_route(rustorch_ir::OpKind::Matmul, CPU);
    assert_eq!(run(&runtime, &executable), GPU);
    assert_eq!(compiled(&state), 1);
}

#[test]
fn graphs_that_are_run_by_themselves_get_their_programs_too() {
    let (runtime, state) = pair();
    let device = || {
        let input = [storage(&[1.0; 4])];
        let outputs = runtime.run(&two_operations(), &input, on(GPU)).unwrap();
        assert_eq!(values(&runtime, &outputs[0]), [-4.0]);
        runtime.device_of(&outputs[0])
    };
    assert_eq!(device(), CPU);
    finish(&runtime, &state);
    assert_eq!(device(), GPU);
}

#[test]
fn what_is_in_a_cache_is_not_waited_for() {
    let (gpu, state) = slow_gpu();
    state.gate.open();
    let runtime = Runtime::new([gpu.with_cache().backend(), cpu()]);
    let executable = runtime.prepare(two_operations(), on(GPU));
    assert_eq!(run(&runtime, &executable), GPU);
}

#[test]
fn where_there_is_no_next_device_the_compiler_is_waited_for() {
    let (gpu, state) = slow_gpu();
    state.gate.open();
    let runtime = Runtime::new([gpu.backend()]);
    let executable = runtime.prepare(two_operations(), Routing::AUTO);
    assert_eq!(run(&runtime, &executable), GPU);
    let (runtime, state) = pair();
    state.gate.open();
    let executable = runtime.prepare(two_operations(), strict(on(GPU)));
    assert_eq!(run(&runtime, &executable), GPU);
    assert_eq!(compiled(&state), 1);
}

#[test]
fn who_measures_waits_for_the_compiler() {
    let (runtime, state) = pair();
    state.gate.open();
    runtime.set_background_compilation(false);
    let executable = runtime.prepare(two_operations(), on(GPU));
    assert_eq!(run(&runtime, &executable), GPU);
    assert_eq!(compiled(&state), 1);
}

#[test]
fn a_program_that_does_not_compile_is_left_to_the_next_device() {
    for class in [
        FailureClass::Unsupported,
        FailureClass::OutOfMemory { never_fits: false },
        FailureClass::Caller,
        FailureClass::Lost,
    ] {
        let (runtime, state) = pair();
        state.compile_failures.lock().unwrap().push_back(class);
        let executable = runtime.prepare(two_operations(), on(GPU));
        assert_eq!(run(&runtime, &executable), CPU);
        finish(&runtime, &state);
        assert_eq!(run(&runtime, &executable), CPU);
        assert_eq!(run(&runtime, &executable), CPU);
        runtime.wait_for_compilation();
        // Once, with its reason.
        let [Fallback { error, to }] = &runtime.fallbacks()[..] else {
            panic!("{:?}", runtime.fallbacks());
        };
        assert_eq!((error.class, *to), (class, Some(CPU)));
        assert_eq!(compiled(&state), 1, "{class}");
        assert_eq!(runtime.is_lost(GPU), class == FailureClass::Lost);
        let why = match class {
            FailureClass::Lost => "opencl:0: lost".to_owned(),
            _ => format!("opencl:0: compiling failed: told to: {class}"),
        };
        let rows = executable.explain().unwrap();
        assert!(rows.iter().all(|row| row.reason == why), "{rows:?}");
    }
}

#[test]
fn states_stay_right_when_programs_move() {
    // A cache of four rows, and a counter that must not run twice.
    let mut g = Graph::new();
    let ty = |shape: &[usize]| TensorType::new(shape, DType::F32);
    let [cache, count, x] = [&[4][..], &[1], &[1]].map(|shape| g.input(ty(shape)).unwrap());
    let at = g.input(TensorType::new([1], DType::I32)).unwrap();
    let cache = g.push(UpdateSlice { dim: 0 }, &[cache, x, at]).unwrap();
    let total = sum(&mut g, cache);
    let more = g.add_scalar(count, 1.0).unwrap();
    let count = g.push(Assign, &[count, more]).unwrap();
    for value in [cache, total, count] {
        g.output(value);
    }
    let (runtime, state) = pair();
    let executable = runtime.prepare(g, on(GPU));
    let (cache, count) = (storage(&[0.0; 4]), storage(&[0.0]));
    let mut totals = Vec::new();
    let mut devices = Vec::new();
    for step in 0..4 {
        if step == 2 {
            finish(&runtime, &state);
        }
        let index = [step].map(i32::to_ne_bytes).concat();
        let index = rustorch_runtime::HostBuffer::copy_of(&index).unwrap();
        let x = storage(&[10.0 + step as f32]);
        let inputs = [cache.clone(), count.clone(), x, Storage::from_host(index)];
        let outputs = executable.run(&inputs).unwrap();
        totals.push(values(&runtime, &outputs[1])[0]);
        devices.push(runtime.device_of(&outputs[1]));
    }
    assert_eq!(devices, [CPU, CPU, GPU, GPU]);
    assert_eq!(totals, [10.0, 21.0, 33.0, 46.0]);
    assert_eq!(values(&runtime, &cache), [10.0, 11.0, 12.0, 13.0]);
    assert_eq!(values(&runtime, &count), [4.0]);
    // And back, when the device is full.
    let full = FailureClass::OutOfMemory { never_fits: true };
    state.failures.lock().unwrap().push_back(full);
    let index = rustorch_runtime::HostBuffer::copy_of(&[0; 4]).unwrap();
    let inputs = [
        cache.clone(),
        count.clone(),
        storage(&[1.0]),
        Storage::from_host(index),
    ];
    let outputs = executable.run(&inputs).unwrap();
    assert_eq!(values(&runtime, &outputs[1]), [37.0]);
    assert_eq!(values(&runtime, &count), [5.0]);
}

#[test]
fn nobody_waits_for_a_compiler_at_the_end() {
    let (runtime, state) = pair();
    let executable = runtime.prepare(two_operations(), on(GPU));
    assert_eq!(run(&runtime, &executable), CPU);
    // One that is begun after the first.
    let other = runtime.prepare(graph(5, neg), on(GPU));
    other.run(&[storage(&[1.0; 5])]).unwrap();
    state.dropped.close();
    drop((executable, other, runtime));
    // The call goes on with what is its own, and nothing is left behind it.
    state.gate.open();
    state.dropped.pass();
    assert!(compiled(&state) <= 1);
}
