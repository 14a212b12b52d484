//! Core ML's compiler at work while the next device serves, and what it leaves behind.

mod common;

use std::sync::Arc;

use rustorch_coreml::CoreMl;
use rustorch_coreml_emulator::{Call, Emulated, Fault};
use rustorch_ir::ops::{Scan, ScanOp};
use rustorch_ir::{DType, Graph, TensorType};
use rustorch_runtime::{
    DeviceType, Executable, FailureClass, HostBuffer, Routing, Runtime, Storage,
};

use common::{
    COREML, SLOW, bytes, convolved, device, device_with, floats, graph, run, run_graph, runtime,
    settings,
};

const REFERENCE: DeviceType = DeviceType::Reference;

fn slow() -> Emulated {
    Emulated::new(15).compiling_slowly(SLOW)
}

/// A device whose compiler does not end before it is released, and its runtime.
fn held(folder: &tempfile::TempDir) -> (Arc<CoreMl<Emulated>>, Runtime) {
    let coreml = device(slow(), folder.path());
    coreml.api().hold(Call::Compile);
    let runtime = runtime(&coreml);
    (coreml, runtime)
}

/// [`graph`] on Core ML first.
fn prepared(runtime: &Runtime) -> Executable {
    let routing = Routing {
        device: COREML,
        ..Routing::AUTO
    };
    runtime.prepare(graph(), routing)
}

/// The device that computes it, which is right, with read-only weights.
fn step(runtime: &Runtime, executable: &Executable, weights: &Storage) -> DeviceType {
    let operands = [Storage::from_host(floats(192)), weights.clone()];
    let outputs = executable.run(&operands).unwrap();
    let expected = runtime.prepare(graph(), on(REFERENCE)).run(&operands);
    let expected = expected.unwrap().remove(0);
    assert_eq!(bytes(runtime, &outputs[0]), bytes(runtime, &expected));
    runtime.device_of(&outputs[0])
}

fn on(device: DeviceType) -> Routing {
    Routing {
        device,
        ..Routing::AUTO
    }
}

fn weights(scale: f32) -> Storage {
    let bytes: Vec<u8> = (0..108)
        .flat_map(|i| (scale * (i % 7) as f32).to_ne_bytes())
        .collect();
    Storage::from_host(HostBuffer::borrowed(bytes))
}

#[test]
fn core_ml_takes_over_between_two_runs() {
    let folder = tempfile::tempdir().unwrap();
    let (coreml, runtime) = held(&folder);
    let (executable, known) = (prepared(&runtime), weights(1.0));
    for _ in 0..3 {
        assert_eq!(step(&runtime, &executable, &known), REFERENCE);
    }
    assert_eq!(coreml.api().calls(Call::Load), 0);
    coreml.api().release();
    runtime.wait_for_compilation();
    assert_eq!(step(&runtime, &executable, &known), COREML);
    assert_eq!(runtime.fallbacks(), []);

    // Another program finds it in the cache, so that nobody waits for a compiler.
    let (coreml, runtime) = held(&folder);
    let executable = prepared(&runtime);
    assert_eq!(step(&runtime, &executable, &known), COREML);
    // With other weights it is another model.
    let executable = prepared(&runtime);
    assert_eq!(step(&runtime, &executable, &weights(2.0)), REFERENCE);
    coreml.api().release();
    runtime.wait_for_compilation();
    assert_eq!(coreml.api().calls(Call::Compile), 1);
}

/// Two segments for Core ML with a running sum between them, which it is not offered.
fn two_segments() -> Graph {
    let mut graph = Graph::new();
    let ty = |shape: &[usize]| TensorType::new(shape, DType::F32);
    let x = graph.input(ty(&[1, 3, 8, 8])).unwrap();
    let [first, second] = [3, 4].map(|n| graph.input(ty(&[4, n, 3, 3])).unwrap());
    let y = convolved(&mut graph, x, first);
    let scan = Scan {
        op: ScanOp::Sum,
        dim: 3,
    };
    let y = graph.push(scan, &[y]).unwrap();
    let y = convolved(&mut graph, y, second);
    graph.output(y);
    graph
}

#[test]
fn a_failure_is_told_once_and_the_next_device_goes_on() {
    for fault in [Fault::Code(1), Fault::OutOfMemory] {
        let folder = tempfile::tempdir().unwrap();
        let (coreml, runtime) = held(&folder);
        coreml.api().fail(Call::Compile, 0, fault);
        let (executable, known) = (prepared(&runtime), weights(1.0));
        assert_eq!(step(&runtime, &executable, &known), REFERENCE);
        coreml.api().release();
        for _ in 0..3 {
            runtime.wait_for_compilation();
            assert_eq!(step(&runtime, &executable, &known), REFERENCE);
        }
        let fallbacks = runtime.fallbacks();
        let told: Vec<String> = fallbacks.iter().map(ToString::to_string).collect();
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains("injected"), "{told:?}");
        assert_eq!(coreml.api().calls(Call::Compile), 1);
    }
}

/// Folders in which nothing can be made.
#[test]
fn a_cache_that_cannot_be_written_is_one_line() {
    for api in [Emulated::new(15), slow()] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let coreml = device(api, &file);
        let runtime = runtime(&coreml);
        let expected = run_graph(&runtime, two_segments(), REFERENCE);
        let executable = runtime.prepare(two_segments(), on(COREML));
        let inputs: Vec<Storage> = (executable.graph().inputs().iter())
            .map(|ty| Storage::from_host(floats(ty.shape.elements())))
            .collect();
        for _ in 0..3 {
            let outputs = executable.run(&inputs).unwrap();
            assert_eq!(bytes(&runtime, &outputs[0]), expected);
            runtime.wait_for_compilation();
        }
        run(&runtime, COREML);
        let fallbacks = runtime.fallbacks();
        assert_eq!(fallbacks.len(), 1, "{fallbacks:?}");
        let told = fallbacks[0].to_string();
        assert_eq!(fallbacks[0].error.class, FailureClass::Unsupported);
        let cure = "set RUSTORCH_CACHE_DIR to a writable folder";
        assert!(told.contains(cure) && !told.contains('\n'), "{told}");
        assert_eq!(runtime.used_devices().len(), 1);
    }
}

#[test]
fn what_core_ml_does_not_take_from_the_cache_is_compiled_again() {
    let folder = tempfile::tempdir().unwrap();
    let coreml = device(Emulated::new(15), folder.path());
    let expected = run(&runtime(&coreml), COREML);
    drop(coreml);
    // Its files have the sizes that they had.
    for_each_file(folder.path(), &mut |file| {
        if file.ends_with("model.mlmodel") {
            let bytes = std::fs::read(file).unwrap().len();
            std::fs::write(file, vec![0xFF; bytes]).unwrap();
        }
    });
    let again = device(Emulated::new(15), folder.path());
    let runtime = runtime(&again);
    assert_eq!(run(&runtime, COREML), expected);
    assert_eq!(again.api().calls(Call::Compile), 1);
    assert_eq!(runtime.fallbacks(), []);
}

fn for_each_file(folder: &std::path::Path, body: &mut dyn FnMut(&std::path::Path)) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => for_each_file(&path, body),
            false => body(&path),
        }
    }
}

#[test]
fn every_version_of_the_system_has_models_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    for macos in [12, 13, 14, 15, 26] {
        for compiled in [1, 0] {
            let coreml = device(Emulated::new(macos), folder.path());
            let runtime = runtime(&coreml);
            let expected = run(&runtime, REFERENCE);
            assert_eq!(run(&runtime, COREML), expected, "macOS {macos}");
            assert_eq!(coreml.api().calls(Call::Predict), 1, "macOS {macos}");
            assert_eq!(coreml.api().calls(Call::Compile), compiled, "macOS {macos}");
            assert_eq!(runtime.fallbacks(), []);
        }
    }
}

#[test]
fn machines_without_a_neural_engine_compute_on_the_others() {
    use rustorch_coreml::{ComputeUnits, Options};
    let intel = || Emulated::with_processor("Intel(R) Core(TM) i7-9750H CPU @ 2.60GHz", 13);
    let virtual_machine =
        || Emulated::with_processor("Apple M2 (Virtual)", 15).without_neural_engine();
    for api in [intel, virtual_machine] as [fn() -> Emulated; 2] {
        let folder = tempfile::tempdir().unwrap();
        let with = |units| {
            let options = Options {
                units,
                ..Options::default()
            };
            let settings = rustorch_coreml::Settings {
                options,
                ..settings(folder.path())
            };
            CoreMl::new(api(), 0, settings)
        };
        let refused = with(ComputeUnits::CpuAndNeuralEngine).err().unwrap();
        let told = refused.to_string();
        assert!(
            told.contains("has no Neural Engine") && !told.contains('\n'),
            "{told}"
        );
        let coreml = Arc::new(with(ComputeUnits::All).unwrap());
        let runtime = runtime(&coreml);
        let expected = run(&runtime, REFERENCE);
        let executable = prepared(&runtime);
        let inputs = [192, 108].map(|count| Storage::from_host(floats(count)));
        let outputs = executable.run(&inputs).unwrap();
        assert_eq!(bytes(&runtime, &outputs[0]), expected);
        assert_eq!(runtime.device_of(&outputs[0]), COREML);
        let preferred = executable.preferred_units();
        let units = preferred.iter().filter_map(|p| p.unit.as_deref());
        assert_eq!(units.collect::<Vec<_>>(), ["GPU"]);
    }
}

#[test]
fn preferences_are_told_of_programs_that_ran() {
    let folder = tempfile::tempdir().unwrap();
    let coreml = device(Emulated::new(15), folder.path());
    let runtime = runtime(&coreml);
    let executable = prepared(&runtime);
    assert_eq!(executable.preferred_units(), []);
    let inputs = [192, 108].map(|count| Storage::from_host(floats(count)));
    executable.run(&inputs).unwrap();
    let lines = executable.preferred_units();
    let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
    let is_gpu = |line: &String| line.starts_with("coreml:0 prefers GPU for ");
    assert!(lines.iter().any(is_gpu), "{lines:?}");
    let is_constants = |line: &String| line.starts_with("coreml:0 reports no preference for ");
    assert!(lines.iter().any(is_constants), "{lines:?}");
}

#[test]
fn packages_are_kept_where_they_are_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("kept/here");
    let with = |dump: &std::path::Path, cache: &str| {
        let settings = rustorch_coreml::Settings {
            dump: Some(dump.to_owned()),
            ..settings(&folder.path().join(cache))
        };
        device_with(Emulated::new(15), settings)
    };
    let coreml = with(&kept, "cache");
    let expected = run(&runtime(&coreml), COREML);
    run_graph(&runtime(&coreml), two_segments(), COREML);
    // The first one comes again, as a segment and from the cache, and is there already.
    run(&runtime(&with(&kept, "cache")), COREML);
    let mut count = 0;
    for package in std::fs::read_dir(&kept).unwrap() {
        let path = package.unwrap().path();
        assert_eq!(path.extension().unwrap(), "mlpackage");
        rustorch_coreml_emulator::Model::read(&path).unwrap();
        count += 1;
    }
    assert_eq!(count, 2);
    // A folder that cannot be written changes nothing.
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let coreml = with(&file, "other");
    let runtime = runtime(&coreml);
    assert_eq!(run(&runtime, COREML), expected);
    assert_eq!(runtime.fallbacks(), []);
}
