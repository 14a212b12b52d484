//! Bytes move when they have to, are counted when they move, and are right wherever they are.

use std::sync::atomic::Ordering;

use rustorch_ir::ops::{Cast, UpdateSlice};
use rustorch_ir::{DType, Graph, TensorType};
use rustorch_runtime::{
    DeviceType, HostBuffer, Moved, NodeNote, Routing, RunError, Runtime, Storage, TransferMethod,
};

use crate::fake::{Fake, cpu};
use crate::{GPU, graph, neg, on, storage, values};

const OTHER: DeviceType = DeviceType::Cuda(0);

fn moved(runtime: &Runtime, from: DeviceType, to: DeviceType) -> (u64, u64) {
    let Moved { bytes, copies } = runtime.memory().moved(from, to);
    (bytes, copies)
}

#[test]
fn copies_are_counted_by_route() {
    let gpus = [GPU, OTHER].map(|device| Fake::gpu(device).backend());
    let runtime = Runtime::new(gpus);
    let executable = |device| runtime.prepare(graph(8, neg), on(device));
    let input = storage(&[1.0; 8]);
    let first = executable(GPU)
        .run(std::slice::from_ref(&input))
        .unwrap()
        .remove(0);
    assert_eq!(moved(&runtime, DeviceType::Cpu, GPU), (32, 1));
    // It is there already.
    executable(GPU).run(&[input]).unwrap();
    assert_eq!(moved(&runtime, DeviceType::Cpu, GPU), (32, 1));
    // From one device to the other over the host.
    let second = executable(OTHER).run(&[first]).unwrap().remove(0);
    assert_eq!(moved(&runtime, GPU, DeviceType::Cpu), (32, 1));
    assert_eq!(moved(&runtime, DeviceType::Cpu, OTHER), (32, 1));
    assert_eq!(values(&runtime, &second), [1.0; 8]);
    assert_eq!(moved(&runtime, OTHER, DeviceType::Cpu), (32, 1));
    assert_eq!(runtime.memory().routes().len(), 4);
}

#[test]
fn in_shared_memory_nothing_is_copied() {
    let gpu = Fake::gpu(GPU).sharing().backend();
    let runtime = Runtime::new([cpu(), gpu]);
    let weights = vec![2f32; 8];
    let weights = HostBuffer::borrowed(bytemuck::cast_slice::<f32, u8>(&weights).to_vec());
    let inputs = [storage(&[1.0; 8]), Storage::from_host(weights)];
    let mut g = Graph::new();
    let [x, w] = [0; 2].map(|_| g.input(TensorType::new([8], DType::F32)).unwrap());
    let y = g.mul(x, w).unwrap();
    g.output(y);
    for device in [GPU, DeviceType::Cpu, GPU] {
        let outputs = runtime.run(&g, &inputs, on(device)).unwrap();
        assert_eq!(values(&runtime, &outputs[0]), [2.0; 8]);
        // The result goes on on the other device.
        let outputs = runtime
            .run(&graph(8, neg), &outputs, on(DeviceType::Cpu))
            .unwrap();
        assert_eq!(values(&runtime, &outputs[0]), [-2.0; 8]);
    }
    assert_eq!(runtime.memory().routes(), []);
}

/// A graph that writes its second input to a state, at a position, and returns the state.
fn update() -> Graph {
    let mut g = Graph::new();
    let state = g.input(TensorType::new([4], DType::F32)).unwrap();
    let value = g.input(TensorType::new([1], DType::F32)).unwrap();
    let at = g.input(TensorType::new([1], DType::I32)).unwrap();
    let state = g.push(UpdateSlice { dim: 0 }, &[state, value, at]).unwrap();
    g.output(state);
    g
}

#[test]
fn a_state_is_whole_wherever_it_is_written() {
    for sharing in [false, true] {
        let device = |device| {
            let gpu = Fake::gpu(device);
            if sharing { gpu.sharing() } else { gpu }.backend()
        };
        let runtime = Runtime::new([cpu(), device(GPU), device(OTHER)]);
        let state = storage(&[0.0; 4]);
        let write = |on_device, value: f32, at: i32| {
            let at = HostBuffer::copy_of(bytemuck::bytes_of(&at)).unwrap();
            let inputs = [state.clone(), storage(&[value]), Storage::from_host(at)];
            let outputs = runtime.run(&update(), &inputs, on(on_device)).unwrap();
            assert!(outputs[0].same_as(&state));
        };
        write(GPU, 1.0, 0);
        write(OTHER, 2.0, 1);
        write(GPU, 3.0, 2);
        write(DeviceType::Cpu, 4.0, 3);
        assert_eq!(values(&runtime, &state), [1.0, 2.0, 3.0, 4.0], "{sharing}");
        write(GPU, 5.0, 0);
        write(GPU, 6.0, 1);
        assert_eq!(values(&runtime, &state), [5.0, 6.0, 3.0, 4.0]);
        // The host's turn: what devices have is outdated.
        runtime
            .write(&state, bytemuck::cast_slice(&[9f32; 4]))
            .unwrap();
        write(GPU, 8.0, 3);
        write(OTHER, 7.0, 0);
        assert_eq!(values(&runtime, &state), [7.0, 9.0, 9.0, 8.0]);
        // Reading on one device does not make the other's copy stale.
        let read = |device| {
            let outputs = runtime
                .run(&graph(4, neg), std::slice::from_ref(&state), on(device))
                .unwrap();
            values(&runtime, &outputs[0])
        };
        let expected = [-7.0, -9.0, -9.0, -8.0];
        assert_eq!(
            (read(GPU), read(OTHER)),
            (expected.to_vec(), expected.to_vec())
        );
        let at_all = runtime.memory().routes().iter().any(|r| r.moved.bytes > 0);
        assert_ne!(at_all, sharing, "{:?}", runtime.memory().routes());
    }
}

#[test]
fn memory_that_may_not_be_written_is_copied_to_be_a_state() {
    let runtime = Runtime::new([cpu()]);
    let bytes = bytemuck::cast_slice::<f32, u8>(&[1.0, 2.0, 3.0, 4.0]).to_vec();
    let state = Storage::from_host(HostBuffer::borrowed(bytes));
    // The processor has it in place for reading already.
    let seen = runtime.run(&graph(4, neg), std::slice::from_ref(&state), Routing::AUTO);
    assert_eq!(
        values(&runtime, &seen.unwrap()[0]),
        [-1.0, -2.0, -3.0, -4.0]
    );
    let at = Storage::from_host(HostBuffer::zeroed(4).unwrap());
    let inputs = [state.clone(), storage(&[9.0]), at];
    runtime.run(&update(), &inputs, Routing::AUTO).unwrap();
    assert_eq!(values(&runtime, &state), [9.0, 2.0, 3.0, 4.0]);
    assert_eq!(moved(&runtime, DeviceType::Cpu, DeviceType::Cpu), (16, 1));
}

#[test]
fn the_method_follows_from_the_memory() {
    let shared = DeviceType::Metal(0);
    let runtime = Runtime::new([
        cpu(),
        Fake::gpu(GPU).backend(),
        Fake::gpu(OTHER).backend(),
        Fake::gpu(shared).sharing().backend(),
    ]);
    let memory = runtime.memory();
    let cpu = DeviceType::Cpu;
    for (from, to, method) in [
        (cpu, shared, TransferMethod::ZeroCopy),
        (shared, cpu, TransferMethod::ZeroCopy),
        (GPU, GPU, TransferMethod::ZeroCopy),
        (cpu, GPU, TransferMethod::Standard),
        (OTHER, shared, TransferMethod::Standard),
        (GPU, OTHER, TransferMethod::HostStaging),
    ] {
        assert_eq!(memory.optimize_transfer(from, to), method, "{from} {to}");
    }
}

/// The predicted method of a transfer is the method that storages use.
#[test]
fn bytes_move_by_the_method_that_was_told() {
    let cpu_device = DeviceType::Cpu;
    for (has_peers, method) in [
        (false, TransferMethod::HostStaging),
        (true, TransferMethod::Standard),
    ] {
        let gpu = |device| match has_peers {
            true => Fake::gpu(device).with_peers().backend(),
            false => Fake::gpu(device).backend(),
        };
        let runtime = Runtime::new([gpu(GPU), gpu(OTHER), cpu()]);
        assert_eq!(runtime.memory().optimize_transfer(GPU, OTHER), method);
        let on_gpu = runtime.prepare(graph(8, neg), on(GPU));
        let first = on_gpu.run(&[storage(&[1.0; 8])]).unwrap().remove(0);
        let on_other = runtime.prepare(graph(8, neg), on(OTHER));
        let second = on_other.run(&[first]).unwrap().remove(0);
        let (straight, staged) = match method {
            TransferMethod::Standard => ((32, 1), (0, 0)),
            _ => ((0, 0), (32, 1)),
        };
        assert_eq!(moved(&runtime, GPU, OTHER), straight, "{method:?}");
        assert_eq!(moved(&runtime, GPU, cpu_device), staged, "{method:?}");
        assert_eq!(moved(&runtime, cpu_device, OTHER), staged, "{method:?}");
        assert_eq!(values(&runtime, &second), [1.0; 8]);
    }
}

#[test]
fn pools_know_what_is_in_use() {
    let runtime = Runtime::new([cpu(), Fake::gpu(GPU).backend()]);
    let pool = || {
        let pools = runtime.memory().pools();
        let pool = pools.into_iter().find(|pool| pool.device == GPU).unwrap();
        assert_eq!(pool.capacity, Some(1 << 30));
        (pool.in_use, pool.peak)
    };
    assert_eq!(pool(), (0, 0));
    let input = storage(&[1.0; 8]);
    let outputs = runtime
        .run(&graph(8, neg), std::slice::from_ref(&input), on(GPU))
        .unwrap();
    assert_eq!(pool(), (64, 64));
    drop(outputs);
    assert_eq!(pool(), (32, 64));
    // The memory of a small copy waits for the next one.
    runtime.write(&input, &[0; 32]).unwrap();
    assert_eq!(pool(), (32, 64));
    drop(input);
    assert_eq!(pool(), (0, 64));
    let large = storage(&[1.0; 1 << 15]);
    runtime.place(&large, GPU).unwrap();
    assert_eq!(pool(), (1 << 17, 1 << 17));
    runtime.write(&large, &[0; 1 << 17]).unwrap();
    assert_eq!(pool(), (0, 1 << 17));
}

#[test]
fn accesses_and_conversions_are_counted() {
    let runtime = Runtime::new([cpu()]);
    let memory = runtime.memory();
    let before = memory.accesses(DeviceType::Cpu).unwrap();
    assert_eq!((before.accesses, before.last_access), (0, None));
    let g = graph(4, |g, x| {
        let dtype = DType::F16;
        let y = g.push(Cast { dtype }, &[x]).unwrap();
        neg(g, y)
    });
    runtime
        .run(&g, &[storage(&[1.0; 4])], Routing::AUTO)
        .unwrap();
    let after = memory.accesses(DeviceType::Cpu).unwrap();
    assert_eq!(after.accesses, 2);
    assert!(after.last_access.is_some());
    assert_eq!(memory.conversions(), 1);
    assert!(memory.accesses(GPU).is_none());
}

#[test]
fn a_state_of_another_type_is_a_conversion() {
    let runtime = Runtime::new([cpu()]);
    let written = |state: DType| {
        let mut g = Graph::new();
        let state = g.input(TensorType::new([4], state)).unwrap();
        let value = g.input(TensorType::new([1], DType::F32)).unwrap();
        let at = g.input(TensorType::new([1], DType::I32)).unwrap();
        let bytes = g.ty(state).bytes();
        let state = g.push(UpdateSlice { dim: 0 }, &[state, value, at]).unwrap();
        g.output(state);
        let zeros = |n| Storage::from_host(HostBuffer::zeroed(n).unwrap());
        let inputs = [zeros(bytes), storage(&[1.0]), zeros(4)];
        runtime.run(&g, &inputs, Routing::AUTO).unwrap();
        runtime.memory().conversions()
    };
    assert_eq!(written(DType::F32), 0);
    assert_eq!(written(DType::F16), 1);
}

#[test]
fn a_storage_tells_who_wrote_it_and_who_can_use_it() {
    const CPU: DeviceType = DeviceType::Cpu;
    for sharing in [false, true] {
        let device = |device| {
            let gpu = Fake::gpu(device);
            if sharing { gpu.sharing() } else { gpu }.backend()
        };
        let runtime = Runtime::new([cpu(), device(GPU), device(OTHER)]);
        let told = |s: &Storage| (s.last_writer(), s.valid_on().to_vec());
        let given = storage(&[1.0; 4]);
        assert_eq!(told(&given), (CPU, vec![CPU]));
        runtime.place(&given, GPU).unwrap();
        assert_eq!(told(&given), (CPU, vec![CPU, GPU]));
        let computed = runtime.run(&graph(4, neg), std::slice::from_ref(&given), on(GPU));
        let computed = computed.unwrap().remove(0);
        assert_eq!(told(&computed), (GPU, vec![GPU]));
        let weak = computed.downgrade();
        runtime.synchronize(&computed).unwrap();
        assert_eq!(told(&computed), (GPU, vec![CPU, GPU]));
        runtime.place(&computed, OTHER).unwrap();
        assert_eq!(told(&computed), (GPU, vec![CPU, GPU, OTHER]));
        let copied: Vec<_> = runtime.memory().routes();
        assert_eq!(copied.is_empty(), sharing, "{copied:?}");
        let bytes = bytemuck::cast_slice(&[2f32; 4]);
        runtime.write(&weak.upgrade().unwrap(), bytes).unwrap();
        let kept = match sharing {
            true => vec![CPU, GPU, OTHER],
            false => vec![CPU],
        };
        assert_eq!(told(&computed), (CPU, kept));
        drop(computed);
        assert!(weak.upgrade().is_none());
    }
}

#[test]
fn storages_are_placed_ahead_of_use() {
    let gpu = Fake::gpu(GPU);
    let state = gpu.state();
    let runtime = Runtime::new([cpu(), gpu.backend()]);
    let input = storage(&[1.0; 8]);
    runtime.place(&input, GPU).unwrap();
    assert!(runtime.has_copy(&input, GPU) && !runtime.has_copy(&input, DeviceType::Cpu));
    assert_eq!(moved(&runtime, DeviceType::Cpu, GPU), (32, 1));
    let error = runtime.place(&input, OTHER).unwrap_err();
    assert!(
        error.to_string().contains("cuda:0: not on this machine"),
        "{error}"
    );
    state.lost.store(true, Ordering::SeqCst);
    let error = runtime.place(&storage(&[1.0]), GPU).unwrap_err();
    assert!(matches!(error, RunError::Device(_)), "{error}");
    assert!(runtime.is_lost(GPU));
    assert_eq!(values(&runtime, &input), [1.0; 8]);
}

#[test]
fn explanations_tell_what_has_to_move() {
    let runtime = Runtime::new([cpu(), Fake::gpu(GPU).backend()]);
    let mut g = graph(8, |g, x| {
        let y = neg(g, x);
        g.unary(rustorch_ir::ops::UnaryOp::Exp, y).unwrap()
    });
    let last = g.outputs()[0];
    g.pin(last, Some(GPU));
    let rows = runtime.prepare(g, Routing::AUTO).explain().unwrap();
    let moved: Vec<_> = rows.iter().map(|row| (row.device, row.moved())).collect();
    assert_eq!(moved, [(DeviceType::Cpu, 0), (GPU, 32)]);
    assert_eq!(
        rows[1].to_string(),
        "exp on opencl:0: pinned to opencl:0; copied there: operand 0, f32[8], from cpu"
    );
    let rows = runtime.prepare(graph(8, neg), on(GPU)).explain().unwrap();
    assert_eq!(rows[0].moved(), 32);
    // Known operands are not moved here. Rows show the notes on nodes.
    let input = storage(&[1.0; 8]);
    runtime.place(&input, GPU).unwrap();
    let mut g = graph(8, neg);
    for device in [GPU, DeviceType::Cpu] {
        let told = format!("opposite: neg on {device}: pinned to {device}, as node 0 is");
        g.pin(g.outputs()[0], Some(device));
        let note = |node| NodeNote {
            method: Some("opposite"),
            pinned: Some(format!("as node {node} is")),
        };
        let inputs = std::slice::from_ref(&input);
        let rows = runtime.explain(g.clone(), inputs, Routing::AUTO, &note);
        assert_eq!(rows.unwrap()[0].to_string(), told);
    }
}
