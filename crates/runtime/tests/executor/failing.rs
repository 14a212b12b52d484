//! Each class of failure has its answer.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustorch_runtime::{
    DeviceType, FailureClass, Fallback, Hardware, Routing, RunError, Runtime, Storage,
};

use crate::fake::{Fake, State, cpu};
use crate::{GPU, graph, neg, on, storage, strict, values};

const FULL: FailureClass = FailureClass::OutOfMemory { never_fits: false };
const NEVER: FailureClass = FailureClass::OutOfMemory { never_fits: true };

/// A GPU before the processor, with what commands it.
fn pair() -> (Runtime, Arc<State>) {
    let gpu = Fake::gpu(GPU);
    let state = gpu.state();
    (Runtime::new([gpu.backend(), cpu()]), state)
}

fn run(runtime: &Runtime, routing: Routing) -> Result<Storage, RunError> {
    let outputs = runtime.run(&graph(4, neg), &[storage(&[1.0; 4])], routing)?;
    assert_eq!(values(runtime, &outputs[0]), [-1.0; 4]);
    Ok(outputs[0].clone())
}

/// The classes of the failures so far, and where the work went.
fn record(runtime: &Runtime) -> Vec<(FailureClass, Option<DeviceType>)> {
    let row = |Fallback { error, to }| (error.class, to);
    runtime.fallbacks().into_iter().map(row).collect()
}

#[test]
fn out_of_memory_once_is_tried_again_there() {
    let (runtime, state) = pair();
    state.failures.lock().unwrap().push_back(FULL);
    let output = run(&runtime, on(GPU)).unwrap();
    assert_eq!(runtime.device_of(&output), GPU);
    assert_eq!(state.trims.load(Ordering::SeqCst), 1);
    assert_eq!(record(&runtime), [(FULL, Some(GPU))]);
}

#[test]
fn out_of_memory_twice_goes_on() {
    let (runtime, state) = pair();
    state.refusals.lock().unwrap().extend([FULL, FULL]);
    let output = run(&runtime, on(GPU)).unwrap();
    assert_eq!(runtime.device_of(&output), DeviceType::Cpu);
    let cpu = Some(DeviceType::Cpu);
    assert_eq!(record(&runtime), [(FULL, Some(GPU)), (FULL, cpu)]);
    // Another run may find memory again.
    let other = runtime
        .run(&graph(5, neg), &[storage(&[1.0; 5])], on(GPU))
        .unwrap();
    assert_eq!(runtime.device_of(&other[0]), GPU);
}

#[test]
fn what_can_never_fit_goes_on_at_once() {
    let (runtime, state) = pair();
    state.refusals.lock().unwrap().push_back(NEVER);
    let output = run(&runtime, on(GPU)).unwrap();
    assert_eq!(runtime.device_of(&output), DeviceType::Cpu);
    assert_eq!(state.trims.load(Ordering::SeqCst), 0);
    assert_eq!(record(&runtime), [(NEVER, Some(DeviceType::Cpu))]);
}

#[test]
fn when_nobody_has_memory_the_devices_words_are_kept() {
    let gpu = Fake::gpu(GPU);
    gpu.state.refusals.lock().unwrap().extend([FULL; 8]);
    let runtime = Runtime::new([gpu.backend()]);
    let error = run(&runtime, Routing::AUTO).unwrap_err().to_string();
    assert_eq!(
        error,
        "no device can run unary of f32[4]: opencl:0: told to: out of memory"
    );
}

#[test]
fn a_lost_device_is_avoided() {
    let (runtime, state) = pair();
    state.failures.lock().unwrap().push_back(FailureClass::Lost);
    let output = run(&runtime, on(GPU)).unwrap();
    assert_eq!(runtime.device_of(&output), DeviceType::Cpu);
    run(&runtime, on(GPU)).unwrap();
    assert_eq!(state.runs.load(Ordering::SeqCst), 0);
    assert_eq!(
        record(&runtime),
        [(FailureClass::Lost, Some(DeviceType::Cpu))]
    );
    assert!(runtime.is_lost(GPU) && !runtime.has_gpu());
    let error = run(&runtime, strict(on(GPU))).unwrap_err().to_string();
    assert!(error.ends_with("opencl:0: lost"), "{error}");
}

#[test]
fn a_strict_run_reports_what_failed_and_remembers_a_loss() {
    let (runtime, state) = pair();
    state.failures.lock().unwrap().push_back(FailureClass::Lost);
    let error = run(&runtime, strict(on(GPU))).unwrap_err();
    assert_eq!(
        error.to_string(),
        "opencl:0: device lost: told to: device lost"
    );
    assert!(runtime.is_lost(GPU) && runtime.fallbacks().is_empty());
    assert_eq!(runtime.memory().faults().of(GPU), 1);
}

#[test]
fn a_result_lost_on_its_device_is_reported_when_it_is_read() {
    let (runtime, state) = pair();
    let outputs = runtime
        .run(&graph(4, neg), &[storage(&[1.0; 4])], on(GPU))
        .unwrap();
    state.lost.store(true, Ordering::SeqCst);
    let mut bytes = [0; 16];
    let error = runtime.read(&outputs[0], 0, &mut bytes).unwrap_err();
    assert_eq!(
        error,
        RunError::DataLost {
            input: 0,
            during: None,
        }
    );
    // The read has found the loss: the next run does not try.
    assert_eq!(record(&runtime), [(FailureClass::Lost, None)]);
    let output = run(&runtime, on(GPU)).unwrap();
    assert_eq!(runtime.device_of(&output), DeviceType::Cpu);
    assert_eq!(record(&runtime).len(), 1);
}

#[test]
fn an_input_that_was_lost_is_named() {
    let (runtime, state) = pair();
    let made = runtime
        .run(&graph(4, neg), &[storage(&[1.0; 4])], on(GPU))
        .unwrap();
    state.lost.store(true, Ordering::SeqCst);
    let error = runtime.run(&graph(4, neg), &made, on(DeviceType::Cpu));
    assert_eq!(
        error.unwrap_err(),
        RunError::DataLost {
            input: 0,
            during: None,
        }
    );
    // The device that failed is the one that had it, not the one that asked.
    assert!(runtime.is_lost(GPU) && !runtime.is_lost(DeviceType::Cpu));
}

#[test]
fn an_intermediate_result_that_was_lost_is_computed_again() {
    let first = Fake::new(DeviceType::Cuda(0), Hardware::Gpu);
    let lost = first.state();
    let runtime = Runtime::new([first.backend(), cpu()]);
    let mut g = graph(4, |g, x| {
        let y = neg(g, x);
        g.unary(rustorch_ir::ops::UnaryOp::Exp, y).unwrap()
    });
    let last = g.outputs()[0];
    g.pin(rustorch_ir::ValueId(1), Some(DeviceType::Cuda(0)));
    g.pin(last, Some(DeviceType::Cpu));
    let executable = runtime.prepare(g, Routing::AUTO);
    let input = [storage(&[0.0; 4])];
    executable.run(&input).unwrap();
    // The device runs its part, and is gone when the result is fetched.
    *lost.after_run.lock().unwrap() = true;
    let outputs = executable.run(&input).unwrap();
    assert_eq!(values(&runtime, &outputs[0]), [1.0; 4]);
    assert_eq!(lost.runs.load(Ordering::SeqCst), 2);
    assert_eq!(record(&runtime), [(FailureClass::Lost, None)]);
}

#[test]
fn what_shared_memory_holds_survives_unless_it_was_not_shown() {
    let gpu = Fake::gpu(GPU).sharing();
    let state = gpu.state();
    let runtime = Runtime::new([gpu.backend(), cpu()]);
    let input = storage(&[1.0; 4]);
    let seen = runtime
        .run(&graph(4, neg), std::slice::from_ref(&input), on(GPU))
        .unwrap();
    let unseen = runtime
        .run(&graph(4, neg), std::slice::from_ref(&input), on(GPU))
        .unwrap();
    assert_eq!(values(&runtime, &seen[0]), [-1.0; 4]);
    state.lost.store(true, Ordering::SeqCst);
    assert_eq!(values(&runtime, &input), [1.0; 4]);
    assert_eq!(values(&runtime, &seen[0]), [-1.0; 4]);
    let mut bytes = [0; 16];
    let error = runtime.read(&unseen[0], 0, &mut bytes).unwrap_err();
    assert_eq!(
        error,
        RunError::DataLost {
            input: 0,
            during: None,
        }
    );
}

#[test]
fn unsupported_is_remembered() {
    let (runtime, state) = pair();
    state
        .failures
        .lock()
        .unwrap()
        .push_back(FailureClass::Unsupported);
    // The failure names no node: the device is given up for this run only.
    let output = run(&runtime, on(GPU)).unwrap();
    assert_eq!(runtime.device_of(&output), DeviceType::Cpu);
    let other = runtime
        .run(&graph(5, neg), &[storage(&[1.0; 5])], on(GPU))
        .unwrap();
    assert_eq!(runtime.device_of(&other[0]), GPU);
}

#[test]
fn failures_are_counted_by_device_and_class() {
    let (runtime, state) = pair();
    state
        .failures
        .lock()
        .unwrap()
        .extend([FULL, FailureClass::Lost]);
    run(&runtime, on(GPU)).unwrap();
    let faults = runtime.memory().faults();
    assert_eq!(
        (faults.total(), faults.of(GPU), faults.of(DeviceType::Cpu)),
        (2, 2, 0)
    );
    assert_eq!(
        faults.to_string(),
        "opencl:0: device lost × 1, opencl:0: out of memory × 1"
    );
}

#[test]
fn beyond_a_limit_there_is_no_memory() {
    let (runtime, _) = pair();
    runtime.memory().set_limit(GPU, 40);
    let free = |runtime: &Runtime| runtime.memory().pools()[0].free;
    assert_eq!(free(&runtime), Some(40));
    let output = run(&runtime, on(GPU)).unwrap();
    assert_eq!(runtime.device_of(&output), GPU);
    assert!(runtime.fallbacks().is_empty());
    // The input is gone, the output is still there.
    assert_eq!(free(&runtime), Some(24));
    let more = run(&runtime, on(GPU)).unwrap();
    assert_eq!(runtime.device_of(&more), DeviceType::Cpu);
    let cpu = Some(DeviceType::Cpu);
    assert_eq!(record(&runtime), [(FULL, Some(GPU)), (FULL, cpu)]);
    drop(output);
    let again = run(&runtime, on(GPU)).unwrap();
    assert_eq!(runtime.device_of(&again), GPU);
    // More than the limit was never there.
    runtime.memory().set_limit(GPU, 15);
    run(&runtime, on(GPU)).unwrap();
    assert_eq!(record(&runtime)[2..], [(NEVER, cpu)]);
}
