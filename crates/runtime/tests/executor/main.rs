//! Planning, running and failing over on devices that are made up: they compute as the
//! processor does, and say, remember and fail what a test tells them to.

mod background;
mod calibrating;
mod choosing;
mod composites;
mod costs;
mod failing;
mod fake;
mod fetching;
mod graphs;
mod memory;
mod moving;
mod partitioning;
mod plans;
mod replaying;
mod selecting;
mod updating;

use rustorch_ir::ops::UnaryOp;
use rustorch_ir::{DType, Graph, TensorType, ValueId};
use rustorch_runtime::{DeviceType, Explanation, HostBuffer, Routing, Runtime, Storage};

const GPU: DeviceType = DeviceType::OpenCL(0);

/// A graph of one `f32` input of so many elements; `build` makes the output.
fn graph(elements: usize, build: impl FnOnce(&mut Graph, ValueId) -> ValueId) -> Graph {
    let mut g = Graph::new();
    let x = g.input(TensorType::new([elements], DType::F32)).unwrap();
    let y = build(&mut g, x);
    g.output(y);
    g
}

fn neg(g: &mut Graph, x: ValueId) -> ValueId {
    g.unary(UnaryOp::Neg, x).unwrap()
}

fn sum(g: &mut Graph, x: ValueId) -> ValueId {
    g.reduce(rustorch_ir::ops::ReduceOp::Sum, x, 0).unwrap()
}

fn storage(values: &[f32]) -> Storage {
    Storage::from_host(HostBuffer::copy_of(bytemuck::cast_slice(values)).unwrap())
}

fn values(runtime: &Runtime, storage: &Storage) -> Vec<f32> {
    let mut values = vec![0f32; storage.bytes() / 4];
    let bytes = bytemuck::cast_slice_mut(&mut values);
    runtime.read(storage, 0, bytes).unwrap();
    values
}

/// The rows of a graph's plan.
fn explain(runtime: &Runtime, graph: &Graph, routing: Routing) -> Vec<Explanation> {
    let executable = runtime.prepare(graph.clone(), routing);
    executable.explain().unwrap()
}

/// Device and reason of a graph's only row.
fn choice(runtime: &Runtime, graph: &Graph, routing: Routing) -> (DeviceType, String) {
    match &explain(runtime, graph, routing)[..] {
        [row] => (row.device, row.reason.clone()),
        rows => panic!("{rows:?}"),
    }
}

fn on(device: DeviceType) -> Routing {
    Routing {
        device,
        ..Routing::AUTO
    }
}

fn strict(routing: Routing) -> Routing {
    Routing {
        strict: true,
        ..routing
    }
}
