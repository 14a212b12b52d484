//! Runs a graph node by node.

use std::rc::Rc;
use std::sync::Arc;

use rustorch_ir::{Graph, Node, Role, TensorType, ValueId};
use rustorch_runtime::platform::Instant;
use rustorch_runtime::{
    DeviceBuffer, DeviceError, DeviceType, FailureClass, LaunchTime, Nodes, Probe, Program,
};
use smallvec::smallvec;

use crate::Values;
use crate::kernels::{Launch, Results};
use crate::operand::{Call, Operand};

/// A graph with the kernel of each node.
pub(crate) struct Interpreter {
    graph: Graph,
    launches: Vec<Launch>,
    /// Each node that is not a view, by itself: the work of a launch.
    nodes: Arc<[Nodes]>,
    /// For each value, the last node that reads it; past the end for outputs.
    last_use: Vec<usize>,
}

impl Interpreter {
    /// A program of `graph`, with one launch for each node.
    pub(crate) fn new(graph: Graph, launches: Vec<Launch>) -> Self {
        let mut last_use = vec![0; graph.len()];
        for (index, node) in graph.nodes().iter().enumerate() {
            for input in &node.inputs {
                last_use[input.index()] = index;
            }
        }
        for output in graph.outputs() {
            last_use[output.index()] = usize::MAX;
        }
        let nodes = graph.nodes().iter().enumerate();
        let nodes = nodes.filter(|(_, node)| !is_view(node));
        Self {
            nodes: nodes.map(|(at, _)| smallvec![at]).collect(),
            graph,
            launches,
            last_use,
        }
    }
}

/// Returns whether nothing is computed for it.
fn is_view(node: &Node) -> bool {
    node.op.def().role() == Role::View
}

impl Program for Interpreter {
    fn run(
        &self,
        inputs: &[Arc<dyn DeviceBuffer>],
        outputs: &[Arc<dyn DeviceBuffer>],
        probe: &dyn Probe,
    ) -> Result<(), DeviceError> {
        let mut run = Run {
            graph: &self.graph,
            inputs,
            values: vec![None; self.graph.len()],
        };
        let mut launched = 0;
        for (index, (node, &launch)) in self.graph.nodes().iter().zip(&self.launches).enumerate() {
            let is_view = is_view(node);
            if !is_view {
                probe.before(index, &node.op)?;
            }
            let start = Instant::now();
            let results = run
                .evaluate(node, launch)
                .map_err(|e| e.at(index, node.op.name()))?;
            if let (Some(begin), false) = (probe.timed_since(), is_view) {
                let since = start.saturating_duration_since(begin);
                let time = LaunchTime::new(since, start.elapsed());
                probe.took(&self.nodes, launched, &[time]);
                launched += 1;
            }
            for (value, result) in node.results().zip(results) {
                run.values[value.index()] = Some(result);
            }
            for input in &node.inputs {
                if self.last_use[input.index()] <= index {
                    run.values[input.index()] = None;
                }
            }
        }
        for (&value, buffer) in self.graph.outputs().iter().zip(outputs) {
            let bytes = run.value(value)?.encode(self.graph.ty(value).dtype);
            // SAFETY: an output is this run's own.
            unsafe { buffer.write(0, &bytes)? };
        }
        Ok(())
    }
}

/// The values of one run.
struct Run<'a> {
    graph: &'a Graph,
    inputs: &'a [Arc<dyn DeviceBuffer>],
    /// Values that were computed, or read, and are still needed.
    values: Vec<Option<Rc<Values>>>,
}

impl Run<'_> {
    /// The elements of a value; inputs are read when they are first asked for.
    fn value(&mut self, value: ValueId) -> Result<Rc<Values>, DeviceError> {
        if let Some(values) = &self.values[value.index()] {
            return Ok(values.clone());
        }
        let buffer = &self.inputs[value.index()];
        let mut bytes = vec![0; buffer.bytes()];
        // SAFETY: nobody else writes to a run's inputs, and `evaluate` does not meanwhile.
        unsafe { buffer.read(0, &mut bytes)? };
        let values = Rc::new(Values::decode(bytes, self.graph.ty(value).dtype));
        self.values[value.index()] = Some(values.clone());
        Ok(values)
    }

    fn evaluate(&mut self, node: &Node, launch: Launch) -> Result<Results, DeviceError> {
        let graph = self.graph;
        let operands = (node.inputs.iter())
            .map(|&input| {
                Ok(Operand {
                    ty: graph.ty(input),
                    values: self.value(input)?,
                })
            })
            .collect::<Result<Vec<_>, DeviceError>>()?;
        node.outputs.iter().try_for_each(check_memory)?;
        let call = Call {
            inputs: &operands,
            outputs: &node.outputs,
        };
        let mut results = launch(&node.op, &call).map_err(|misuse| {
            DeviceError::new(DeviceType::Reference, FailureClass::Caller, misuse.0)
        })?;
        drop(operands);
        for (result, ty) in results.iter_mut().zip(&node.outputs) {
            if let Some(own) = Rc::get_mut(result) {
                own.wrap(ty.dtype);
            }
        }
        for (result, state) in node.overwrites() {
            let Some(root) = graph.state_root(node.inputs[state]) else {
                continue;
            };
            let dtype = node.outputs[result].dtype;
            let bytes = results[result].encode(dtype);
            // SAFETY: a state is this run's own while it lasts.
            unsafe { self.inputs[root.index()].write(0, &bytes)? };
            self.values[root.index()] = None;
            results[result] = Rc::new(Values::decode(bytes, dtype));
        }
        Ok(results)
    }
}

/// A result that the system has no memory for is an error, not the end of the process.
fn check_memory(ty: &TensorType) -> Result<(), DeviceError> {
    let bytes = (ty.shape.elements()).checked_mul(size_of::<num_complex::Complex64>());
    let granted = |n| Vec::<u8>::new().try_reserve_exact(n).is_ok();
    if bytes.is_some_and(granted) {
        return Ok(());
    }
    Err(DeviceError::new(
        DeviceType::Reference,
        FailureClass::OutOfMemory { never_fits: false },
        format!("the system has no memory for {ty} in double precision"),
    ))
}
