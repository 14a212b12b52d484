//! Core ML as a device of the runtime, with an emulated Core ML.

#[path = "../common/mod.rs"]
mod common;
mod states;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rustorch_coreml::{
    Api, ComputeUnit, ComputeUnits, CoreMl, Emitter, Opset, Options, Precision, Settings, Target,
};
use rustorch_coreml_emulator::{Call, Emulated, Fault};
use rustorch_ir::ops::{Activation, ActivationKind, AsStrided, Embedding, Linear, UpdateSlice};
use rustorch_ir::{BlockFormat, DType, Graph, Layout, TensorType};
use rustorch_reference::Reference;
use rustorch_runtime::{
    Backend, Deadline, DeviceError, DeviceType, FailureClass, HostBuffer, NoProbe, Routing,
    Runtime, Storage,
};

use common::{COREML, SLOW, device, device_with, floats, graph, run, runtime, settings};

fn inputs() -> [Storage; 2] {
    [192, 108].map(|count| Storage::from_host(floats(count)))
}

#[test]
fn nothing_is_copied_where_types_are_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let coreml = device(Emulated::new(15), folder.path());
    assert_eq!(coreml.compilation(), None);
    let runtime = common::runtime(&coreml);
    let expected = run(&runtime, DeviceType::Reference);
    assert_eq!(coreml.api().calls(Call::Predict), 0);
    assert_eq!(run(&runtime, COREML), expected);
    assert_eq!(coreml.api().calls(Call::Predict), 1);
    assert_eq!(coreml.api().units(), Some(ComputeUnits::CpuAndGpu));
    assert_eq!(coreml.copied(), 0);
    // Arrays of Core ML's own are copied.
    let gaps = device(Emulated::new(15).with_gaps(1), folder.path());
    let runtime = Runtime::new([gaps.clone() as Arc<dyn Backend>]);
    assert_eq!(run(&runtime, COREML), expected);
    assert_eq!(gaps.copied(), expected.len() as u64);
    // The cache held the program that the first device compiled.
    assert_eq!(gaps.api().calls(Call::Compile), 0);
}

/// Weights that nobody can write to, and what a graph gives with them.
fn weights(scale: f32) -> Storage {
    let bytes: Vec<u8> = (0..108)
        .flat_map(|i| (scale * (i % 7) as f32).to_ne_bytes())
        .collect();
    Storage::from_host(HostBuffer::borrowed(bytes))
}

#[test]
fn memory_that_nobody_writes_to_is_part_of_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let coreml = device(Emulated::new(15), folder.path());
    let reference: Arc<dyn Backend> = Arc::new(Reference::new());
    let runtime = Runtime::new([coreml.clone() as Arc<dyn Backend>, reference]);
    let on = |device| Routing {
        device,
        ..Routing::AUTO
    };
    let executable = runtime.prepare(graph(), on(COREML));
    let expected = runtime.prepare(graph(), on(DeviceType::Reference));
    let [x, _] = inputs();
    let [first, second] = [1.0, -2.0].map(weights);
    let calls = || [Call::Compile, Call::Array].map(|call| coreml.api().calls(call));
    for (weights, compiled, arrays) in [
        // The arrays are those of the input and the output.
        (&first, 1, 2),
        (&first, 0, 2),
        // With other weights they are an input from now on.
        (&second, 1, 3),
        (&first, 0, 3),
    ] {
        let operands = [x.clone(), weights.clone()];
        let before = calls();
        let outputs = executable.run(&operands).unwrap();
        let after = calls();
        assert_eq!(after, [before[0] + compiled, before[1] + arrays]);
        let bytes = |storage: &Storage| {
            let mut bytes = vec![0; storage.bytes()];
            runtime.read(storage, 0, &mut bytes).unwrap();
            bytes
        };
        let expected = expected.run(&operands).unwrap();
        assert_eq!(bytes(&outputs[0]), bytes(&expected[0]));
    }
}

#[test]
fn every_failure_goes_to_the_next_device() {
    for call in [
        Call::Compile,
        Call::Load,
        Call::Array,
        Call::Predict,
        Call::Read,
    ] {
        for code in [0, 1, 3] {
            let folder = tempfile::tempdir().unwrap();
            let coreml = device(Emulated::new(15).with_gaps(2), folder.path());
            let reference: Arc<dyn Backend> = Arc::new(Reference::new());
            let runtime = Runtime::new([coreml.clone() as Arc<dyn Backend>, reference]);
            let expected = run(&runtime, DeviceType::Reference);
            coreml.api().fail(call, 0, Fault::Code(code));
            assert_eq!(run(&runtime, COREML), expected, "{call:?}");
            let fallbacks = runtime.fallbacks();
            let told = fallbacks[0].to_string();
            assert_eq!(fallbacks[0].error.class, FailureClass::Unsupported);
            assert!(told.contains("injected"), "{told}");
            // No unfinished entry stays in the cache.
            let left = std::fs::read_dir(folder.path()).unwrap();
            let names = left.map(|entry| entry.unwrap().file_name());
            let unfinished = names.filter(|name| name.to_string_lossy().contains('.'));
            assert_eq!(unfinished.count(), 0);
        }
    }
}

#[test]
fn a_call_that_hangs_is_given_up() {
    for call in [Call::Compile, Call::Load, Call::Predict] {
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings {
            deadline: Deadline::after(Duration::from_millis(200)),
            ..settings(folder.path())
        };
        let coreml = Arc::new(CoreMl::new(Emulated::new(14), 0, settings).unwrap());
        let reference: Arc<dyn Backend> = Arc::new(Reference::new());
        let runtime = Runtime::new([coreml.clone() as Arc<dyn Backend>, reference]);
        let expected = run(&runtime, DeviceType::Reference);
        coreml.api().fail(call, 0, Fault::Hang);
        assert_eq!(run(&runtime, COREML), expected, "{call:?}");
        assert_eq!(runtime.fallbacks()[0].error.class, FailureClass::Timeout);
    }
}

#[test]
fn a_cache_that_cannot_be_written_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let coreml = device(Emulated::new(14), &file);
    let refused = coreml.compile(&graph()).err().unwrap();
    assert_eq!(refused.class, FailureClass::Unsupported);
    assert!(refused.message.contains("RUSTORCH_CACHE_DIR"), "{refused}");
}

#[test]
fn systems_without_ml_programs_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let absent = CoreMl::new(Emulated::new(11), 0, settings(folder.path())).err();
    let told = absent.unwrap().to_string();
    let expected = "coreml: macOS 11 has no ML Programs; macOS 12 or iOS 15, or later, is needed";
    assert_eq!(told, expected);
}

#[test]
fn units_that_cannot_be_had_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let open = |api, units| {
        let options = Options {
            units,
            ..Options::default()
        };
        let settings = Settings {
            options,
            ..settings(folder.path())
        };
        CoreMl::new(api, 0, settings).err().map(|e| e.to_string())
    };
    let without = || Emulated::new(15).without_neural_engine();
    for units in ComputeUnits::ALL {
        assert_eq!(units.to_string().parse(), Ok(units));
        assert_eq!(open(Emulated::new(15), units), None);
        let refused = units == ComputeUnits::CpuAndNeuralEngine;
        for (api, why) in [
            (
                without(),
                "an emulated Mac has no Neural Engine that Core ML may use",
            ),
            (Emulated::new(12), "macOS 12 cannot leave out the GPU alone"),
        ] {
            let told =
                refused.then(|| format!("coreml: {why}; choose other compute units, such as all"));
            assert_eq!(open(api, units), told);
        }
    }
    let error = "npu".parse::<ComputeUnits>().unwrap_err();
    assert_eq!(error, "expected all, cpu-and-ne, cpu-and-gpu, cpu");
}

#[test]
fn refused_memory_is_asked_for_once_more() {
    for call in [Call::Compile, Call::Load, Call::Array, Call::Predict] {
        let folder = tempfile::tempdir().unwrap();
        let coreml = device(Emulated::new(15), folder.path());
        let reference: Arc<dyn Backend> = Arc::new(Reference::new());
        let runtime = Runtime::new([coreml.clone() as Arc<dyn Backend>, reference]);
        let expected = run(&runtime, DeviceType::Reference);
        coreml.api().fail(call, 0, Fault::OutOfMemory);
        assert_eq!(run(&runtime, COREML), expected, "{call:?}");
        let fallbacks = runtime.fallbacks();
        let told: Vec<_> = fallbacks.iter().map(|f| (f.error.class, f.to)).collect();
        let class = FailureClass::OutOfMemory { never_fits: false };
        assert_eq!(told, [(class, Some(COREML))], "{call:?}");
        assert_eq!(
            coreml.api().calls(Call::Predict),
            1 + usize::from(call == Call::Predict)
        );
    }
}

#[test]
fn the_device_says_what_its_compiler_takes() {
    let folder = tempfile::tempdir().unwrap();
    let slow = Emulated::new(15).compiling_slowly(SLOW);
    assert_eq!(device(slow, folder.path()).compilation(), Some(SLOW));
}

#[test]
fn preferences_are_told_operation_by_operation() {
    let folder = tempfile::tempdir().unwrap();
    let package = Emitter::new(Target::new(Opset::CoreML8, Precision::F32));
    let package = package.emit(&graph(), &BTreeMap::new()).unwrap().package;
    let path = folder.path().join("model.mlpackage");
    package.write(&path).unwrap();
    let preferences = Emulated::new(15)
        .preferences(&path, ComputeUnits::CpuAndGpu)
        .unwrap();
    let conv = preferences.iter().find(|(name, _)| name == "conv");
    assert_eq!(conv.unwrap().1, Some(ComputeUnit::Gpu));
    let constants = preferences.iter().filter(|(name, _)| name == "const");
    assert!(constants.clone().count() > 0);
    assert!(constants.clone().all(|(_, unit)| unit.is_none()));
}

/// Runs a graph on the device itself.
fn predict(
    coreml: &CoreMl<Emulated>,
    graph: &Graph,
    inputs: &[&[u8]],
) -> Result<Vec<u8>, DeviceError> {
    let memory = coreml.memory();
    let adopt = |bytes: &&[u8]| memory.adopt(&HostBuffer::copy_of(bytes).unwrap());
    let inputs = inputs.iter().map(adopt).collect::<Result<Vec<_>, _>>()?;
    let bytes = graph.ty(graph.outputs()[0]).bytes();
    let output = memory.alloc(bytes)?;
    let program = coreml.compile(graph)?;
    program.run(&inputs, std::slice::from_ref(&output), &NoProbe)?;
    let mut result = vec![0; bytes];
    // SAFETY: the run is over.
    unsafe { output.read(0, &mut result)? };
    Ok(result)
}

#[test]
fn values_that_no_program_can_have_are_told() {
    let mut graph = Graph::new();
    let table = graph.input(TensorType::new([3, 2], DType::F32)).unwrap();
    let ids = graph.input(TensorType::new([1], DType::I64)).unwrap();
    let dtype = DType::F32;
    let rows = graph.push(Embedding { dtype }, &[table, ids]).unwrap();
    graph.output(rows);
    let folder = tempfile::tempdir().unwrap();
    let coreml = device(Emulated::new(15), folder.path());
    let table: Vec<u8> = (0..6).flat_map(|i| (i as f32).to_ne_bytes()).collect();
    let row = |id: i64| predict(&coreml, &graph, &[&table, &id.to_ne_bytes()]);
    assert_eq!(row(2).unwrap(), table[16..]);
    let refused = row(3).unwrap_err();
    assert_eq!(refused.class, FailureClass::Caller);
    assert_eq!(refused.message, "index 3 of input 1 is outside of 0..3");
    assert_eq!(row(-1).unwrap_err().class, FailureClass::Caller);
}

#[test]
fn views_of_inputs_are_inputs() {
    let mut graph = Graph::new();
    let x = graph.input(TensorType::new([12], DType::F32)).unwrap();
    let whole = Layout::contiguous(&[3, 4].into());
    for layout in [whole.permute(&[1, 0]), whole.slice(1, 1, 2, 2)] {
        let mut graph = graph.clone();
        let shape = layout.shape.clone();
        let expected: Vec<f32> = (0..layout.elements())
            .map(|i| {
                let (row, column) = (i / shape[1], i % shape[1]);
                let at = row * layout.strides[0] + column * layout.strides[1];
                ((layout.offset + at) % 7) as f32 - 3.0
            })
            .map(|x| x.max(0.0))
            .collect();
        let view = graph.push(AsStrided { layout }, &[x]).unwrap();
        let kind = ActivationKind::Relu;
        let y = graph.push(Activation { kind }, &[view]).unwrap();
        graph.output(y);
        let folder = tempfile::tempdir().unwrap();
        let coreml = device(Emulated::new(15), folder.path());
        let bytes: Vec<u8> = (0..12)
            .flat_map(|i| ((i % 7) as f32 - 3.0).to_ne_bytes())
            .collect();
        let result = predict(&coreml, &graph, &[&bytes]).unwrap();
        let result = result.as_chunks().0.iter().map(|&x| f32::from_ne_bytes(x));
        assert_eq!(result.collect::<Vec<f32>>(), expected);
    }
}

/// A view of halves goes in through a surface, whose rows have gaps. Rows of a state come out
/// through one.
#[test]
fn halves_for_the_neural_engine_go_by_way_of_surfaces() {
    let halves = |x: &[f32]| -> Vec<u8> {
        let x = x.iter().map(|&x| half::f16::from_f32(x));
        x.flat_map(half::f16::to_ne_bytes).collect()
    };
    let mut graph = Graph::new();
    let types = [
        TensorType::new([2, 5, 3], DType::F16),
        TensorType::new([12], DType::F16),
        TensorType::new([1], DType::I32),
    ];
    let [state, source, at] = types.map(|ty| graph.input(ty).unwrap());
    let layout = Layout::contiguous(&[3, 2, 2].into()).permute(&[1, 2, 0]);
    let source = graph.push(AsStrided { layout }, &[source]).unwrap();
    let kind = ActivationKind::Relu;
    let source = graph.push(Activation { kind }, &[source]).unwrap();
    let update = UpdateSlice { dim: 1 };
    let state = graph.push(update, &[state, source, at]).unwrap();
    let read = graph.push(Activation { kind }, &[state]).unwrap();
    graph.output(read);
    let zeros = halves(&[0.0; 30]);
    // Element `[i, j, k]` of the view is `6 i + 3 j + k`, but for one below 0.
    let x = halves(&[-1, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11].map(|x| x as f32));
    let mut expected = [0.0; 30];
    for i in 1..12 {
        expected[15 * (i / 6) + 6 + i % 6] = i as f32;
    }
    let expected = halves(&expected);
    for (units, surfaces) in [
        (ComputeUnits::All, 2),
        (ComputeUnits::CpuAndNeuralEngine, 2),
        (ComputeUnits::CpuAndGpu, 0),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let options = Options {
            units,
            precision: Precision::F16,
            ..Options::default()
        };
        let settings = Settings {
            options,
            ..settings(folder.path())
        };
        let coreml = device_with(Emulated::new(15), settings);
        let program = coreml.compile(&graph).unwrap();
        for _ in 0..2 {
            let memory = coreml.memory();
            let inputs = [&zeros, &x, &2_i32.to_ne_bytes().to_vec()]
                .map(|x| memory.adopt(&HostBuffer::copy_of(x).unwrap()).unwrap());
            let output = memory.alloc(zeros.len()).unwrap();
            let outputs = std::slice::from_ref(&output);
            program.run(&inputs, outputs, &NoProbe).unwrap();
            for buffer in [&inputs[0], &output] {
                let mut bytes = vec![0; zeros.len()];
                // SAFETY: the run is over.
                unsafe { buffer.read(0, &mut bytes).unwrap() };
                assert_eq!(bytes, expected, "{units}");
            }
        }
        assert_eq!(coreml.api().surfaces(), surfaces, "{units}");
    }
}

/// Weights that may change cannot be in a program; operations before their product can.
#[test]
fn blocks_that_may_change_go_elsewhere_with_their_product_alone() {
    let mut graph = Graph::new();
    let x = graph.input(TensorType::new([2, 32], DType::F32)).unwrap();
    let format = DType::Block(BlockFormat::Q8_0);
    let w = graph.input(TensorType::new([4, 32], format)).unwrap();
    let kind = ActivationKind::Relu;
    let x = graph.push(Activation { kind }, &[x]).unwrap();
    let y = graph.push(Linear, &[x, w]).unwrap();
    graph.output(y);
    for macos in [13, 15] {
        let folder = tempfile::tempdir().unwrap();
        let coreml = device(Emulated::new(macos), folder.path());
        let runtime = runtime(&coreml);
        let weights = vec![1; 4 * 34];
        let storage = |bytes: &[u8]| Storage::from_host(HostBuffer::copy_of(bytes).unwrap());
        let floats: Vec<u8> = (0..64_i16)
            .flat_map(|i| f32::from(i).to_ne_bytes())
            .collect();
        let routing = Routing {
            device: COREML,
            ..Routing::AUTO
        };
        let executable = runtime.prepare(graph.clone(), routing);
        executable
            .run(&[storage(&floats), storage(&weights)])
            .unwrap();
        let fallbacks = runtime.fallbacks();
        let told: Vec<_> = fallbacks.iter().map(|f| f.error.op).collect();
        assert_eq!(told, [Some("linear")], "macOS {macos}: {fallbacks:?}");
        let rows = executable.explain().unwrap();
        assert_eq!(rows[0].device, COREML, "macOS {macos}: {rows:?}");
    }
}

/// A state `[2, 5, 2]` of ones, and a program that puts the numbers from 0 on into three of its rows.
#[test]
fn states_are_updated_in_their_own_memory() {
    let mut graph = Graph::new();
    let shapes = [[2, 5, 2], [2, 3, 2]].map(|shape| TensorType::new(shape, DType::F32));
    let [state, source] = shapes.map(|ty| graph.input(ty).unwrap());
    // The first of two positions, as prompts have them.
    let at = graph.input(TensorType::new([2], DType::I32)).unwrap();
    let start = graph.slice(at, 0, 0, 1).unwrap();
    let update = UpdateSlice { dim: 1 };
    let state = graph.push(update, &[state, source, start]).unwrap();
    let kind = ActivationKind::Relu;
    let read = graph.push(Activation { kind }, &[state]).unwrap();
    graph.output(read);
    let bytes = |x: &[f32]| -> Vec<u8> { x.iter().flat_map(|x| x.to_ne_bytes()).collect() };
    let ones = bytes(&[1.0; 20]);
    let source = bytes(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11].map(|x| x as f32));
    for api in [Emulated::new(15), Emulated::new(12).with_gaps(1)] {
        let folder = tempfile::tempdir().unwrap();
        let coreml = device(api, folder.path());
        let program = coreml.compile(&graph).unwrap();
        let run = |start: i32| {
            let at = [start, 99].map(i32::to_ne_bytes).concat();
            let memory = coreml.memory();
            let inputs = [&ones, &source, &at]
                .map(|x| memory.adopt(&HostBuffer::copy_of(x).unwrap()).unwrap());
            let output = memory.alloc(ones.len()).unwrap();
            let ran = program.run(&inputs, std::slice::from_ref(&output), &NoProbe);
            let [mut state, mut read] = [(); 2].map(|()| vec![0; ones.len()]);
            // SAFETY: the run is over.
            unsafe {
                inputs[0].read(0, &mut state).unwrap();
                output.read(0, &mut read).unwrap();
            }
            ran.map_or_else(
                |e| (Some(e.class), state.clone()),
                |()| {
                    assert_eq!(state, read);
                    (None, state.clone())
                },
            )
        };
        let mut expected = ones.clone();
        expected[16..40].copy_from_slice(&source[..24]);
        expected[56..].copy_from_slice(&source[24..]);
        assert_eq!(run(2), (None, expected));
        for outside in [-1, 3] {
            let refused = (Some(FailureClass::Caller), ones.clone());
            assert_eq!(run(outside), refused, "{outside}");
        }
        coreml.api().fail(Call::Predict, 0, Fault::Code(0));
        assert_eq!(run(2), (Some(FailureClass::Unsupported), ones.clone()));
    }
}
