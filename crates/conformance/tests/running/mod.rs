//! Graphs run on a backend, without a runtime.

use std::sync::Arc;

use rustorch_ir::{Graph, ValueId};
use rustorch_runtime::{Backend, DeviceBuffer, DeviceError, NoProbe, Probe};

/// The bytes of the outputs.
pub(crate) fn run(backend: &dyn Backend, graph: &Graph, inputs: &[&[u8]]) -> Vec<Vec<u8>> {
    run_with(backend, graph, inputs, &NoProbe).unwrap()
}

/// The same, watched by a probe.
pub(crate) fn run_with(
    backend: &dyn Backend,
    graph: &Graph,
    inputs: &[&[u8]],
    probe: &dyn Probe,
) -> Result<Vec<Vec<u8>>, DeviceError> {
    let buffer = |bytes| backend.memory().alloc(bytes).unwrap();
    let inputs: Vec<Arc<dyn DeviceBuffer>> = (inputs.iter())
        .map(|bytes| {
            let buffer = buffer(bytes.len());
            // SAFETY: nothing else knows the buffer.
            unsafe { buffer.write(0, bytes) }.unwrap();
            buffer
        })
        .collect();
    let outputs: Vec<Arc<dyn DeviceBuffer>> = (graph.outputs().iter())
        .map(|&output| buffer(graph.ty(output).bytes()))
        .collect();
    backend.compile(graph)?.run(&inputs, &outputs, probe)?;
    let read = |buffer: &Arc<dyn DeviceBuffer>| {
        let mut bytes = vec![0; buffer.bytes()];
        // SAFETY: the run has ended.
        unsafe { buffer.read(0, &mut bytes) }.unwrap();
        bytes
    };
    Ok(outputs.iter().map(read).collect())
}

/// The bytes of the outputs, each node having been run by itself.
pub(crate) fn run_apart(backend: &dyn Backend, graph: &Graph, inputs: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut values = inputs.to_vec();
    for node in graph.nodes() {
        let mut single = Graph::new();
        let operands: Vec<ValueId> = (node.inputs.iter())
            .map(|&v| single.input(graph.ty(v).clone()).unwrap())
            .collect();
        let first = single.push(node.op.clone(), &operands).unwrap();
        for result in single.results(first) {
            single.output(result);
        }
        let bytes: Vec<&[u8]> = (node.inputs.iter())
            .map(|v| &values[v.index()][..])
            .collect();
        values.extend(run(backend, &single, &bytes));
    }
    let outputs = graph.outputs().iter();
    outputs.map(|v| values[v.index()].clone()).collect()
}
