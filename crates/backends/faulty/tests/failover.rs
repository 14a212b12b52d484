//! Every fault at every kernel of a graph with state, on a chain of devices: the answer
//! does not change, and the trace says what happened.

use std::sync::Arc;

use rustorch_cpu::Cpu;
use rustorch_faulty::{Fault, FaultKind, Faulty, When};
use rustorch_ir::ops::{Attention, Embedding, Linear, RmsNorm, UpdateSlice};
use rustorch_ir::{DType, Graph, OpKind, TensorType, ValueId};
use rustorch_reference::Reference;
use rustorch_runtime::{Backend, DeviceType, HostBuffer, Routing, RunError, Runtime, Storage};

const WIDTH: usize = 16;
const CONTEXT: usize = 8;
const STEPS: i32 = 4;

/// A small decode step: ids and position in, a state of keys written and read.
fn decode_step() -> Graph {
    let mut g = Graph::new();
    let mut input = |shape: &[usize], dtype| g.input(TensorType::new(shape, dtype)).unwrap();
    let id = input(&[1], DType::I32);
    let past = input(&[1], DType::I32);
    let keys = input(&[1, CONTEXT, WIDTH], DType::F16);
    let table = input(&[10, WIDTH], DType::F32);
    let weight = input(&[WIDTH, WIDTH], DType::F32);
    let norm = input(&[WIDTH], DType::F32);
    let mut push = |op: rustorch_ir::Op, inputs: &[ValueId]| g.push(op, inputs).unwrap();
    let x = push(Embedding { dtype: DType::F32 }.into(), &[table, id]);
    let normed = push(RmsNorm { eps: 1e-5.into() }.into(), &[x, norm]);
    let q = push(Linear.into(), &[normed, weight]);
    let heads = |g: &mut Graph, x, n| g.reshape(x, [n, 1, WIDTH]).unwrap();
    let k = heads(&mut g, x, 1);
    let keys = g.push(UpdateSlice { dim: 1 }, &[keys, k, past]).unwrap();
    let q = heads(&mut g, q, 1);
    let attention = Attention {
        scale: 0.25.into(),
        causal: true,
        soft_cap: None,
        mask: false,
        past: true,
        window: None,
        log_sum_exp: false,
    };
    let y = g.push(attention, &[q, keys, keys, past]).unwrap();
    let y = g.reshape(y, [1, WIDTH]).unwrap();
    let y = g.push(Linear, &[y, weight]).unwrap();
    g.output(y);
    g
}

fn storage<T: bytemuck::Pod>(values: &[T]) -> Storage {
    Storage::from_host(HostBuffer::copy_of(bytemuck::cast_slice(values)).unwrap())
}

/// Weights cannot be written to, as those of a mapped file.
fn weights(n: usize, seed: f32) -> Storage {
    let values: Vec<f32> = (0..n).map(|i| (i as f32 * seed).sin() / 2.0).collect();
    Storage::from_host(HostBuffer::borrowed(bytemuck::cast_slice(&values).to_vec()))
}

/// Runs all steps. A lost state is made again by running the steps so far, as its recipe says.
fn run(runtime: &Runtime) -> Vec<Vec<f32>> {
    let executable = runtime.prepare(decode_step(), Routing::default());
    let constants = [
        weights(10 * WIDTH, 0.7),
        weights(WIDTH * WIDTH, 1.3),
        weights(WIDTH, 2.1),
    ];
    let new_state = || Storage::from_host(HostBuffer::zeroed(CONTEXT * WIDTH * 2).unwrap());
    let mut state = new_state();
    let mut results = Vec::new();
    let mut step = 0;
    while step < STEPS {
        let ids = [storage(&[(step * 3 + 1) % 10]), storage(&[step])];
        let inputs: Vec<Storage> = (ids.into_iter())
            .chain([state.clone()])
            .chain(constants.iter().cloned())
            .collect();
        match executable.run(&inputs) {
            Ok(outputs) => {
                let mut y = vec![0f32; WIDTH];
                runtime
                    .read(&outputs[0], 0, bytemuck::cast_slice_mut(&mut y))
                    .unwrap();
                results.push(y);
                step += 1;
            }
            Err(RunError::DataLost { input: 2, .. }) => {
                state = new_state();
                results.clear();
                step = 0;
            }
            Err(e) => panic!("{e}"),
        }
    }
    results
}

fn faulty(fault: Fault) -> Arc<Faulty> {
    Arc::new(Faulty::new(Arc::new(Cpu::new(1)), [fault]))
}

fn nth(n: u64, kind: FaultKind) -> Fault {
    Fault {
        device: DeviceType::Cpu,
        op: None,
        when: When::Nth(n),
        kind,
    }
}

fn chain(first: Arc<Faulty>) -> Runtime {
    let backends: [Arc<dyn Backend>; 3] =
        [first, Arc::new(Cpu::new(1)), Arc::new(Reference::new())];
    Runtime::new(backends)
}

/// The same kernels give the same bits. An operation that lost its kernel runs as its parts on the
/// same device, which round in other places.
fn check(got: &[Vec<f32>], expected: &[Vec<f32>], kind: FaultKind, n: u64) {
    let tolerance = match kind {
        FaultKind::Unsupported | FaultKind::Compile => 1e-5,
        _ => 0.0,
    };
    assert_eq!(got.len(), expected.len());
    for (x, y) in got.iter().flatten().zip(expected.iter().flatten()) {
        assert!(
            (x - y).abs() <= tolerance,
            "{} at launch {n}: {x} instead of {y}",
            kind.name()
        );
    }
}

#[test]
fn every_fault_at_every_kernel_gives_the_same_answer() {
    let healthy = faulty(nth(u64::MAX, FaultKind::Lost));
    let runtime = chain(healthy.clone());
    let expected = run(&runtime);
    let launches = healthy.launches();
    assert!(launches >= 5 * STEPS as u64, "{launches} launches");
    assert!(runtime.fallbacks().is_empty());
    for kind in FaultKind::FAILURES {
        for n in 1..=launches {
            let device = faulty(nth(n, kind));
            let runtime = chain(device.clone());
            check(&run(&runtime), &expected, kind, n);
            let fallbacks = runtime.fallbacks();
            let Some(first) = fallbacks.first() else {
                panic!("{} at launch {n} left no trace", kind.name());
            };
            let class = first.error.class;
            assert_eq!(Some(class), kind.class());
            assert!(first.error.message.contains("injected"), "{first}");
            assert!(first.to.is_some(), "{first}");
            if class.loses_device() {
                let struck = device.launches();
                run(&runtime);
                assert_eq!(device.launches(), struck, "a lost device was used again");
            }
        }
    }
}

#[test]
fn a_wrong_result_is_wrong_and_nobody_is_told() {
    let expected = run(&chain(faulty(nth(u64::MAX, FaultKind::Wrong))));
    let runtime = chain(faulty(nth(1, FaultKind::Wrong)));
    let answers = run(&runtime);
    assert!(runtime.fallbacks().is_empty());
    let (first, rest) = (answers[0].iter().zip(&expected[0]), &answers[1..]);
    assert!(first.clone().all(|(a, b)| a != b), "{first:?}");
    assert_eq!(rest, &expected[1..]);
}

/// The devices of a run in which the first one never has a kernel for these.
fn without(ops: &[OpKind]) -> Vec<DeviceType> {
    let missing = ops.iter().map(|&op| Fault {
        device: DeviceType::Cpu,
        op: Some(op),
        when: When::Probability { p: 1.0, seed: 0 },
        kind: FaultKind::Unsupported,
    });
    let expected = run(&Runtime::new([Arc::new(Cpu::new(1)) as Arc<dyn Backend>]));
    let first: Arc<dyn Backend> = Arc::new(Faulty::new(Arc::new(Cpu::new(1)), missing));
    let runtime = Runtime::new([first, Arc::new(Reference::new())]);
    check(&run(&runtime), &expected, FaultKind::Unsupported, 0);
    runtime.used_devices().into_iter().map(|d| d.0).collect()
}

#[test]
fn the_ladder_goes_by_the_parts_to_the_next_device() {
    assert_eq!(without(&[OpKind::Linear]), [DeviceType::Cpu]);
    let both = [DeviceType::Cpu, DeviceType::Reference];
    assert_eq!(without(&[OpKind::Linear, OpKind::Matmul]), both);
}

#[test]
fn strict_mode_names_what_failed() {
    let runtime = chain(faulty(nth(2, FaultKind::Unsupported)));
    let routing = Routing {
        device: DeviceType::Cpu,
        strict: true,
        ..Routing::AUTO
    };
    let mut g = Graph::new();
    let x = g.input(TensorType::new([2, 4], DType::F32)).unwrap();
    let w = g.input(TensorType::new([4, 4], DType::F32)).unwrap();
    let y = g.push(Linear, &[x, w]).unwrap();
    let y = g.push(RmsNorm { eps: 1e-5.into() }, &[y]).unwrap();
    g.output(y);
    let inputs = [weights(8, 0.3), weights(16, 0.4)];
    let error = runtime.run(&g, &inputs, routing).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cpu: unsupported in rms_norm: injected: no kernel"
    );
}

#[test]
fn a_callers_mistake_is_not_retried() {
    let device = faulty(nth(u64::MAX, FaultKind::Lost));
    let runtime = chain(device.clone());
    let mut g = Graph::new();
    let table = g.input(TensorType::new([3, 4], DType::F32)).unwrap();
    let ids = g.input(TensorType::new([2], DType::I32)).unwrap();
    let y = g
        .push(Embedding { dtype: DType::F32 }, &[table, ids])
        .unwrap();
    g.output(y);
    let inputs = [weights(12, 0.3), storage(&[1, 3])];
    let error = runtime.run(&g, &inputs, Routing::default()).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("id 3 at position 1 is outside a table of 3 rows"),
        "{error}"
    );
    assert_eq!(device.launches(), 1);
    assert!(runtime.fallbacks().is_empty());
}

#[test]
fn a_state_serves_one_input() {
    let runtime = chain(faulty(nth(u64::MAX, FaultKind::Lost)));
    let mut g = Graph::new();
    let state = g.input(TensorType::new([4], DType::F32)).unwrap();
    let source = g.input(TensorType::new([4], DType::F32)).unwrap();
    let start = g.input(TensorType::new([1], DType::I32)).unwrap();
    let y = g
        .push(UpdateSlice { dim: 0 }, &[state, source, start])
        .unwrap();
    g.output(y);
    let both = storage(&[0f32; 4]);
    let inputs = [both.clone(), both, storage(&[0i32])];
    let error = runtime.run(&g, &inputs, Routing::default()).unwrap_err();
    assert_eq!(error, RunError::Busy { input: 1 });
}
