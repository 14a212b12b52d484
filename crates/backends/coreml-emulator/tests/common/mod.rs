//! Common parts of the device's tests.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustorch_coreml::cache::Cache;
use rustorch_coreml::{ComputeUnits, CoreMl, Options, Settings};
use rustorch_coreml_emulator::Emulated;
use rustorch_ir::ops::{Activation, ActivationKind, Conv2d};
use rustorch_ir::{DType, Graph, TensorType, ValueId};
use rustorch_reference::Reference;
use rustorch_runtime::{
    Backend, Compilation, Deadline, DeviceType, HostBuffer, Routing, Runtime, Storage,
};

pub(crate) const COREML: DeviceType = DeviceType::CoreML(0);

/// A compiler that takes as long as a test holds it.
pub(crate) const SLOW: Compilation = Compilation {
    program: Duration::from_secs(20),
    least_operations: 2,
};

pub(crate) fn settings(folder: &Path) -> Settings {
    Settings {
        options: Options {
            units: ComputeUnits::CpuAndGpu,
            ..Options::default()
        },
        deadline: Deadline::after(Duration::from_secs(60)),
        ..Settings::new(Cache::new(folder, 1 << 24))
    }
}

pub(crate) fn device_with(api: Emulated, settings: Settings) -> Arc<CoreMl<Emulated>> {
    Arc::new(CoreMl::new(api, 0, settings).unwrap())
}

pub(crate) fn device(api: Emulated, folder: &Path) -> Arc<CoreMl<Emulated>> {
    device_with(api, settings(folder))
}

/// The device, and behind it the reference.
pub(crate) fn runtime(coreml: &Arc<CoreMl<Emulated>>) -> Runtime {
    let reference: Arc<dyn Backend> = Arc::new(Reference::new());
    Runtime::new([coreml.clone() as Arc<dyn Backend>, reference])
}

/// `relu` of a convolution of `x` with `w`.
pub(crate) fn convolved(graph: &mut Graph, x: ValueId, w: ValueId) -> ValueId {
    let y = graph.push(Conv2d::default(), &[x, w]).unwrap();
    let kind = ActivationKind::Relu;
    graph.push(Activation { kind }, &[y]).unwrap()
}

/// A convolution and `relu` of it.
pub(crate) fn graph() -> Graph {
    let mut graph = Graph::new();
    let x = TensorType::new([1, 3, 8, 8], DType::F32);
    let w = TensorType::new([4, 3, 3, 3], DType::F32);
    let [x, w] = [x, w].map(|ty| graph.input(ty).unwrap());
    let y = convolved(&mut graph, x, w);
    graph.output(y);
    graph
}

pub(crate) fn floats(count: usize) -> HostBuffer {
    let bytes: Vec<u8> = (0..count)
        .flat_map(|i| ((i % 7) as f32 - 3.0).to_ne_bytes())
        .collect();
    HostBuffer::copy_of(&bytes).unwrap()
}

/// Result of a graph for inputs of such numbers.
pub(crate) fn run_graph(runtime: &Runtime, graph: Graph, device: DeviceType) -> Vec<u8> {
    let inputs = graph.inputs().iter();
    let inputs: Vec<Storage> = inputs
        .map(|ty| Storage::from_host(floats(ty.shape.elements())))
        .collect();
    let routing = Routing {
        device,
        ..Routing::AUTO
    };
    let outputs = runtime.prepare(graph, routing).run(&inputs).unwrap();
    bytes(runtime, &outputs[0])
}

pub(crate) fn bytes(runtime: &Runtime, storage: &Storage) -> Vec<u8> {
    let mut bytes = vec![0; storage.bytes()];
    runtime.read(storage, 0, &mut bytes).unwrap();
    bytes
}

/// Result of [`graph`].
pub(crate) fn run(runtime: &Runtime, device: DeviceType) -> Vec<u8> {
    run_graph(runtime, graph(), device)
}
