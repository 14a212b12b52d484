//! Caches that programs keep a copy of (`MLState`), and who else writes to them.

use std::path::Path;
use std::sync::Arc;

use half::f16;
use rustorch_coreml::{CoreMl, Options, Settings};
use rustorch_coreml_emulator::{Call, Emulated, Fault};
use rustorch_ir::ops::{Activation, ActivationKind, UpdateSlice};
use rustorch_ir::{DType, Graph, TensorType};
use rustorch_reference::Reference;
use rustorch_runtime::{Backend, DeviceType, Executable, HostBuffer, Routing, Runtime, Storage};
use rustorch_testing::warnings;

use crate::common::{COREML, bytes, device_with, runtime, settings};

/// Bytes of the cache, halves of shape `[2, 5, 4]`.
const CACHE: usize = 80;

fn keeping(api: Emulated, folder: &Path) -> Arc<CoreMl<Emulated>> {
    let settings = settings(folder);
    let options = Options {
        states: true,
        ..settings.options
    };
    device_with(
        api,
        Settings {
            options,
            ..settings
        },
    )
}

/// Writes rows `[2, rows, 4]` into a cache at a position, and gives what it then holds, without what is
/// below 0.
fn step(rows: usize) -> Graph {
    let mut graph = Graph::new();
    let types = [
        TensorType::new([2, 5, 4], DType::F16),
        TensorType::new([2, rows, 4], DType::F16),
        TensorType::new([1], DType::I32),
    ];
    let operands = types.map(|ty| graph.input(ty).unwrap());
    let cache = graph.push(UpdateSlice { dim: 1 }, &operands).unwrap();
    let kind = ActivationKind::Relu;
    let read = graph.push(Activation { kind }, &[cache]).unwrap();
    graph.output(read);
    graph
}

fn halves(x: impl Iterator<Item = f32>) -> Vec<u8> {
    x.flat_map(|x| f16::from_f32(x).to_ne_bytes()).collect()
}

fn storage(bytes: &[u8]) -> Storage {
    Storage::from_host(HostBuffer::copy_of(bytes).unwrap())
}

/// A cache beside what it has to hold.
struct Cache {
    storage: Storage,
    expected: Vec<u8>,
}

impl Cache {
    fn new(from: f32) -> Self {
        let expected = halves((0..40).map(|i| from + i as f32));
        let storage = storage(&expected);
        Self { storage, expected }
    }

    /// Runs a step by which rows of `x` are written, and looks at all that it gives.
    fn run(&mut self, runtime: &Runtime, step: &Executable, rows: usize, at: usize, x: f32) {
        let source = halves((0..8 * rows).map(|i| x + i as f32 / 8.0));
        let position = (at as i32).to_ne_bytes();
        let operands = [self.storage.clone(), storage(&source), storage(&position)];
        let outputs = step.run(&operands).unwrap();
        for (half, source) in source.chunks_exact(8 * rows).enumerate() {
            self.expected[40 * half + 8 * at..][..8 * rows].copy_from_slice(source);
        }
        assert_eq!(bytes(runtime, &self.storage), self.expected);
        let floats = self
            .expected
            .as_chunks()
            .0
            .iter()
            .map(|&x| f16::from_ne_bytes(x));
        let read = halves(floats.map(|x| f32::from(x).max(0.0)));
        assert_eq!(bytes(runtime, &outputs[0]), read);
    }
}

fn prepare(runtime: &Runtime, rows: usize, device: DeviceType) -> Executable {
    let routing = Routing {
        device,
        ..Routing::AUTO
    };
    runtime.prepare(step(rows), routing)
}

#[test]
fn a_cache_is_copied_where_somebody_else_has_written_to_it() {
    let folder = tempfile::tempdir().unwrap();
    let coreml = keeping(Emulated::new(15), folder.path());
    let runtime = runtime(&coreml);
    let token = prepare(&runtime, 1, COREML);
    let prompt = prepare(&runtime, 2, COREML);
    let elsewhere = prepare(&runtime, 1, DeviceType::Reference);
    let fills = || coreml.api().calls(Call::Fill);
    let (mut cache, mut other) = (Cache::new(-20.0), Cache::new(100.0));

    cache.run(&runtime, &token, 1, 0, 1.0);
    assert_eq!((fills(), coreml.copied()), (1, CACHE as u64 + 16));
    // From now on, the new row alone is brought out.
    for (at, x) in [(1, -3.0), (2, 4.0), (0, 7.0)] {
        let copied = coreml.copied();
        cache.run(&runtime, &token, 1, at, x);
        assert_eq!((fills(), coreml.copied()), (1, copied + 16));
    }
    // Another program of Core ML's.
    cache.run(&runtime, &prompt, 2, 3, 9.0);
    assert_eq!(fills(), 1);
    cache.run(&runtime, &token, 1, 1, 5.0);
    assert_eq!(fills(), 2);
    // Another device.
    cache.run(&runtime, &elsewhere, 1, 2, -6.0);
    cache.run(&runtime, &token, 1, 4, 8.0);
    assert_eq!(fills(), 3);
    // The host.
    cache.expected = halves((0..40).map(|i| 60.0 - i as f32));
    runtime.write(&cache.storage, &cache.expected).unwrap();
    cache.run(&runtime, &token, 1, 3, 2.0);
    assert_eq!(fills(), 4);
    // Another cache, and back.
    other.run(&runtime, &token, 1, 0, 3.0);
    cache.run(&runtime, &token, 1, 0, 4.0);
    assert_eq!(fills(), 6);
    cache.run(&runtime, &token, 1, 1, 4.5);
    assert_eq!(fills(), 6);
    assert_eq!(runtime.fallbacks(), []);
}

/// Whatever the state was left as, nobody reads it again.
#[test]
fn a_failure_costs_a_copy() {
    for (call, fault) in [
        (Call::Fill, Fault::OutOfMemory),
        (Call::Predict, Fault::OutOfMemory),
        (Call::Fill, Fault::Code(1)),
        (Call::Predict, Fault::Code(1)),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let coreml = keeping(Emulated::new(15), folder.path());
        let runtime = runtime(&coreml);
        let token = prepare(&runtime, 1, COREML);
        let mut cache = Cache::new(0.0);
        if call == Call::Predict {
            cache.run(&runtime, &token, 1, 0, 1.0);
        }
        coreml.api().fail(call, 0, fault);
        for at in 1..4 {
            cache.run(&runtime, &token, 1, at, at as f32);
        }
        let failures = runtime.fallbacks();
        assert_eq!(failures.len(), 1, "{call:?}, {fault:?}: {failures:?}");
        // Memory that was refused is asked for once more; what is not supported goes on.
        let goes_on = failures[0].to != Some(COREML);
        assert_eq!(goes_on, fault != Fault::OutOfMemory, "{failures:?}");
        let fills = if goes_on { 1 } else { 2 };
        assert_eq!(coreml.api().calls(Call::Fill), fills, "{call:?}, {fault:?}");
    }
}

#[test]
fn a_system_without_states_does_without() {
    let folder = tempfile::tempdir().unwrap();
    for (macos, told) in [
        (14, "in the host's memory"),
        (
            15,
            "in the host's memory, and kept by programs of a token (MLState)",
        ),
    ] {
        let (coreml, warned) = warnings(|| keeping(Emulated::new(macos), folder.path()));
        match (macos, &warned[..]) {
            (14, [warning]) => {
                let expected = "--coreml-states needs macOS 15 or iOS 18, not macOS 14";
                assert!(warning.starts_with(expected), "{warning}");
            }
            (_, warned) => assert!(macos == 15 && warned.is_empty(), "{warned:?}"),
        }
        let details = &coreml.info().details;
        let states = details.iter().find(|(name, _)| name == "states");
        assert_eq!(states.map(|(_, value)| value.as_str()), Some(told));
        let reference: Arc<dyn Backend> = Arc::new(Reference::new());
        let runtime = Runtime::new([coreml.clone() as Arc<dyn Backend>, reference]);
        let token = prepare(&runtime, 1, COREML);
        let mut cache = Cache::new(0.0);
        for at in 0..3 {
            cache.run(&runtime, &token, 1, at, 1.0);
        }
        assert_eq!(coreml.api().calls(Call::Predict), 3);
        assert_eq!(coreml.api().calls(Call::Fill) > 0, macos == 15);
    }
}
