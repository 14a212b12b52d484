//! Computations that are recorded once and run often.

use rustorch_ir::order::sort_by_key;
use rustorch_ir::passes::{
    Changes, Chunks, Conversion, OneDevice, Origins, Pass, RECORDED, Recomputation, Rewritten,
    Saving, Stages, peak,
};
use rustorch_ir::{DType, OpError, TensorType};
use rustorch_macros::track_calls;
use rustorch_runtime::{Call, Executable, Loaded, Moment, RunError, Storage, WorkingMemory};

use crate::Tensor;
use crate::call;
use crate::device::devices::current;
use crate::error::{RusTorchResult, require};
use crate::lazy::capture::{Capture, Leaves};
use crate::lazy::history::History;
use crate::lazy::recovery::recover_lost;
use crate::lazy::value::Value;
use crate::tensor::settle;

/// A recorded computation. It has inputs that differ from run to run, outputs, and tensors in
/// memory that stay: weights, and states that it updates.
///
/// The first run plans it; later runs only launch kernels.
///
/// ```
/// use rustorch_ir::DType;
/// use rustorch_tensor::{Tensor, Trace, tensor};
///
/// # fn main() -> rustorch_tensor::RusTorchResult<()> {
/// let weight = tensor![[1.0, 2.0], [3.0, 4.0]];
/// let x = Tensor::placeholder([1, 2], DType::F32)?;
/// let trace = Trace::new(&[&x], &[&x.linear(&weight, None)?])?;
/// let y = trace.run(&[tensor![1.0, 0.0].storage()?])?;
/// let y = Tensor::from_storage(y[0].clone(), [1, 2], DType::F32)?;
/// assert_eq!(y.to_vec::<f32>()?, [1.0, 3.0]);
/// # Ok(())
/// # }
/// ```
pub struct Trace {
    executable: Executable,
    placeholders: usize,
    leaves: Vec<Storage>,
    /// The inputs that every run writes over.
    states: Vec<usize>,
    outputs: Vec<TensorType>,
    /// For nodes of the graph, in its order, the calls that recorded them.
    calls: Vec<Option<Call>>,
    /// Reports of the passes over the recorded graph.
    changes: Vec<Changes>,
}

#[track_calls]
impl Trace {
    /// Records how `outputs` are computed from `placeholders` and from tensors in memory,
    /// for the current [`runtime`](crate::runtime).
    ///
    /// The computation may update tensors in memory ([`Tensor::update_slice_`], [`Tensor::copy_`]). Every run then
    /// updates them in place. If the result is one of `outputs`, only runs update them.
    ///
    /// # Errors
    /// Fails for a placeholder in the computation that is not among `placeholders`. Also fails for
    /// an old state that is read after its update.
    pub fn new(placeholders: &[&Tensor], outputs: &[&Tensor]) -> RusTorchResult<Self> {
        settle(outputs)?;
        for output in outputs {
            output
                .base()
                .iter()
                .for_each(|base| base.forget(output.value()));
        }
        let values: Vec<&Value> = outputs.iter().map(|t| t.value()).collect();
        let mut history = History::of(values.iter().copied());
        let (runtime, routing) = current();
        // How leaves are computed again, runs do not know.
        let in_memory = history.leaves.iter().map(|(value, _)| value);
        if recover_lost(in_memory, &runtime, routing)? > 0 {
            history = History::of(values.iter().copied());
        }
        let leaves = Leaves::of_trace(&history, placeholders)?;
        let capture = Capture::trace(&history, &leaves, &values)?;
        let recorded = Rewritten::from(capture.outline.graph()?);
        let mut changes = Vec::new();
        let anywhere = &mut OneDevice(|_| true);
        let Rewritten { graph, origins } =
            recorded.through(&RECORDED, anywhere, Some(&mut changes))?;
        let calls = origins.into_iter();
        let calls = calls.map(|of| leaves.recorded(&history, of[0])).collect();
        let executable = runtime.prepare(graph, routing);
        let mut states: Vec<usize> = capture.written.iter().map(|(input, _)| *input).collect();
        sort_by_key(&mut states, |state| *state);
        states.dedup();
        Ok(Self {
            executable: executable.with_fresh_inputs(placeholders.len()),
            placeholders: placeholders.len(),
            leaves: leaves.storages.to_vec(),
            states,
            outputs: outputs.iter().map(|t| t.ty().clone()).collect(),
            calls,
            changes,
        })
    }

    /// The same trace, for a caller that checks values before each run, see
    /// [`Executable::with_checked_values`].
    pub fn with_checked_values(mut self) -> Self {
        self.executable = self.executable.with_checked_values();
        self
    }

    /// The same computation as it is placed now, with conversions between devices. Every computed `f32` value that
    /// goes from one device to another is converted to `dtype` and back. Runtimes without a common type of their
    /// devices do so; this is for comparison.
    ///
    /// # Errors
    /// Fails if no device can run some operation, or if `dtype` is not a float.
    pub fn converting(&self, dtype: DType) -> RusTorchResult<Self> {
        require(
            "converting",
            dtype.is_float(),
            "a floating-point dtype",
            dtype,
        )?;
        let (graph, devices) = self.executable.placement()?;
        let mut placed = self.rewritten(graph.into());
        // Its nodes are others than those recorded.
        placed.calls = Vec::new();
        let devices = &devices;
        let converted = placed.by(&Conversion { devices, dtype })?;
        Ok(converted.unwrap_or(placed))
    }

    /// The same computation with a peak of about `bytes`, as [`Trace::peak_bytes`] counts them, or the least possible.
    /// `output` is the index of an output, for example the loss. Some values computed for it are read again later, for
    /// example by gradients. Some of these are not kept until then, first the values that save most bytes for their
    /// cost. The results are the same.
    ///
    /// # Errors
    /// Fails if there is no such output.
    pub fn saving(&self, output: usize, bytes: usize, saving: Saving) -> RusTorchResult<Self> {
        let graph = self.executable.graph();
        let last = graph.outputs().get(output).copied();
        let is_there = last.filter(|_| output < self.outputs.len());
        let (expected, count) = ("an output of the trace", self.outputs.len());
        let last = is_there
            .ok_or_else(|| OpError::new("saving", expected, format_args!("{output} of {count}")))?;
        let saved = self.by(&Recomputation {
            last,
            bytes,
            saving,
        })?;
        Ok(saved.unwrap_or_else(|| self.unplanned()))
    }

    /// The same computation without a whole table of logits. It computes one chunk of rows after the other: the
    /// product, the cross entropies of its rows, and the gradients of both. The gradients of the product's weights are
    /// summed in single precision if they are halves. So results are the same up to rounding. `None` if something else
    /// reads the logits. Also `None` for too many chunks: compared with half of them, they save less memory than the
    /// sums of gradients cost.
    ///
    /// # Errors
    /// Fails only because of a bug.
    pub fn chunking(&self, chunks: usize) -> RusTorchResult<Option<Self>> {
        self.by(&Chunks { chunks })
    }

    /// The same computation, not planned yet.
    pub fn unplanned(&self) -> Self {
        self.rewritten(self.executable.graph().clone().into())
    }

    /// The same computation after a further pass; `None` if that changes nothing.
    fn by(&self, pass: &dyn Pass) -> RusTorchResult<Option<Self>> {
        let graph = self.executable.graph();
        let rewritten = pass.run(graph, &OneDevice(|_| true))?;
        let changes = Changes::of(pass, graph, rewritten.as_ref());
        Ok(rewritten.map(|rewritten| {
            let mut by = self.rewritten(rewritten);
            by.changes.push(changes);
            by
        }))
    }

    /// The same computation by another graph, made of this one's nodes.
    fn rewritten(&self, rewritten: Rewritten) -> Self {
        let Rewritten { graph, origins } = rewritten;
        let call = |of: Origins| self.calls.get(of[0]).copied().flatten();
        let (runtime, _) = current();
        let executable = runtime.prepare(graph, self.executable.routing());
        Self {
            executable: executable.with_fresh_inputs(self.placeholders),
            placeholders: self.placeholders,
            leaves: self.leaves.clone(),
            states: self.states.clone(),
            outputs: self.outputs.clone(),
            calls: origins.into_iter().map(call).collect(),
            changes: self.changes.clone(),
        }
    }

    /// Returns whether it moves values to the host, as it would be planned now.
    ///
    /// # Errors
    /// Fails if no device can run some operation.
    pub fn offloads(&self) -> RusTorchResult<bool> {
        let (graph, _) = self.executable.placement()?;
        Ok(graph.nodes().iter().any(|node| node.op.def().offloads()))
    }

    /// The passes over this computation, in order, with their changes.
    ///
    /// # Errors
    /// Fails if no device can run some operation.
    pub fn passes(&self) -> RusTorchResult<Stages> {
        let planned = self.executable.passes()?;
        Ok([("recorded", self.changes.clone()), ("planned", planned)])
    }

    /// Bytes of the values that are alive at once, at most, as they were recorded. Devices keep those that a chain of
    /// operations hands on in registers.
    pub fn peak_bytes(&self) -> usize {
        peak(self.executable.graph())
    }

    /// Runs with values for the placeholders, in their order, and returns the outputs' elements, each
    /// contiguous. An output that is a state is that state's storage. In-place writes to a tensor that the
    /// computation reads have to be [evaluated](Tensor::eval) before: memory is read as it is.
    ///
    /// # Errors
    /// Fails unless there is a storage of the right size for each placeholder. Also the errors of
    /// [`Executable::run`].
    pub fn run(&self, inputs: &[Storage]) -> RusTorchResult<Vec<Storage>> {
        let mut outputs = Vec::new();
        self.run_into(inputs, &mut outputs)?;
        Ok(outputs)
    }

    /// [`Trace::run`] for replaying. It clears and fills `outputs`, and reuses storages of an earlier run that have no
    /// other handles. So it allocates no memory.
    ///
    /// # Errors
    /// The same errors as [`Trace::run`].
    pub fn run_into(&self, inputs: &[Storage], outputs: &mut Vec<Storage>) -> RusTorchResult<()> {
        if inputs.len() != self.placeholders {
            let expected = format_args!("{} storages for the placeholders", self.placeholders);
            return Err(OpError::new("trace", expected, inputs.len()).into());
        }
        let ran = self.executable.run_into(&[inputs, &self.leaves], outputs);
        ran.map_err(|e| self.by_call(e))?;
        if !self.states.is_empty() {
            let now = Moment::next();
            let all = || inputs.iter().chain(&self.leaves);
            self.states
                .iter()
                .filter_map(|&state| all().nth(state))
                .for_each(|s| s.overwrite_at(now, call::entered()));
        }
        // Behind the outputs come the states.
        outputs.truncate(self.outputs.len());
        Ok(())
    }

    /// Plans and compiles, and copies tensors in memory to the devices that use them, as [`Executable::load`] does.
    /// Otherwise the first run does this.
    ///
    /// # Errors
    /// The same errors as [`Trace::run`].
    pub fn load(&self, inputs: &[Storage], each: impl FnMut(Loaded)) -> RusTorchResult<()> {
        let fresh = self.placeholders;
        let loaded = self.executable.load(&[inputs, &self.leaves], fresh, each);
        Ok(loaded.map_err(|e| self.by_call(e))?)
    }

    /// [`Trace::load`] that also reserves working memory, as [`Executable::load_with_room`] does.
    ///
    /// # Errors
    /// The same errors as [`Trace::run`].
    pub fn load_with_room(&self, inputs: &[Storage], held: &[WorkingMemory]) -> RusTorchResult<()> {
        let (fresh, inputs) = (self.placeholders, [inputs, &self.leaves]);
        let loaded = self.executable.load_with_room(&inputs, fresh, held, |_| {});
        Ok(loaded.map_err(|e| self.by_call(e))?)
    }

    /// Attributes a failure to the call that recorded the failing operation.
    fn by_call(&self, error: RunError) -> RunError {
        error.by_call(|node| *self.calls.get(node?)?)
    }

    /// Shape and dtype of each output.
    pub fn outputs(&self) -> &[TensorType] {
        &self.outputs
    }

    /// The prepared graph: its inputs are the placeholders, then the storages of
    /// [`Trace::leaf`].
    pub fn executable(&self) -> &Executable {
        &self.executable
    }

    /// The storage that is bound to an input of the graph, by the number in
    /// [`RunError::DataLost`](rustorch_runtime::RunError::DataLost); `None` for placeholders.
    pub fn leaf(&self, input: usize) -> Option<&Storage> {
        self.leaves.get(input.checked_sub(self.placeholders)?)
    }

    /// Replaces the storage `old` by `new`, which must have its size. So a lost state is replaced without recording
    /// again.
    ///
    /// # Errors
    /// Fails if the computation does not use `old`, or if `new` has another size.
    pub fn rebind(&mut self, old: &Storage, new: &Storage) -> RusTorchResult<()> {
        let (expected, got) = (format!("{} bytes", old.bytes()), new.bytes());
        require("rebind", old.bytes() == new.bytes(), expected, got)?;
        let mut found = false;
        for leaf in self.leaves.iter_mut().filter(|leaf| leaf.same_as(old)) {
            *leaf = new.clone();
            found = true;
        }
        let expected = "a storage that the computation uses";
        require("rebind", found, expected, "another one")
    }
}
