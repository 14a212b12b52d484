//! The calls to Core ML, emulated: adversarial if Apple's documents leave room.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use half::f16;
use rustorch_coreml::proto::mil::DataType;
use rustorch_coreml::proto::model::ArrayDataType;
use rustorch_coreml::{Api, ComputeUnit, ComputeUnits, ModelError, Opset, Output, Properties};
use rustorch_runtime::{Compilation, DeviceBuffer, HostBuffer};

use crate::{Error, Model, Tensor, tensor};

/// A call to Core ML.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Call {
    /// [`Api::compile`].
    Compile,
    /// [`Api::load`].
    Load,
    /// [`Api::array`].
    Array,
    /// [`Api::wait`], which evaluates the program: nothing happens before a wait.
    Predict,
    /// [`Api::read`].
    Read,
    /// [`Api::fill`].
    Fill,
}

/// Outcome of a failing call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The call fails with this code.
    Code(isize),
    /// Memory is refused.
    OutOfMemory,
    /// The call never ends.
    Hang,
    /// The call ends the process.
    Abort,
}

/// A Core ML that evaluates programs by itself.
pub struct Emulated {
    properties: Properties,
    /// Elements between the rows of its own arrays, in which it then gives all outputs. `None` if
    /// it uses offered memory.
    gap: Option<usize>,
    state: Mutex<State>,
    /// Told when calls are held no more.
    released: Condvar,
}

#[derive(Default)]
struct State {
    calls: BTreeMap<Call, usize>,
    faults: Vec<(Call, usize, Fault)>,
    units: Option<ComputeUnits>,
    /// Calls of this kind do not go on.
    held: Option<Call>,
    /// Starts of arrays' memory.
    arrays: BTreeSet<usize>,
    /// Surfaces that were made.
    surfaces: usize,
}

/// An array: memory, and the positions of the elements in it.
#[derive(Clone, Debug)]
pub struct Array {
    memory: HostBuffer,
    shape: Vec<usize>,
    strides: Vec<usize>,
    elements: ArrayDataType,
}

/// A prediction without a wait so far.
pub struct Pending {
    model: Arc<Model>,
    inputs: Vec<(String, Array)>,
    outputs: Vec<(String, Array)>,
    states: Option<States>,
}

/// State of a model, by name.
pub type States = Arc<Mutex<BTreeMap<String, Tensor>>>;

impl Emulated {
    /// Core ML of this version of macOS.
    pub fn new(macos: u32) -> Self {
        Self::with_processor("an emulated Mac", macos)
    }

    /// A machine with this processor, whose system reports a Neural Engine from macOS 14 on.
    pub fn with_processor(processor: &str, macos: u32) -> Self {
        Self {
            properties: Properties::new(
                processor.to_owned(),
                format!("macOS {macos}"),
                Opset::of_macos(macos),
                (macos >= 14).then_some(true),
            ),
            gap: None,
            state: Mutex::default(),
            released: Condvar::new(),
        }
    }

    /// The same, with a compiler that is waited for only as long as necessary.
    pub fn compiling_slowly(mut self, compilation: Compilation) -> Self {
        self.properties.compilation = Some(compilation);
        self
    }

    /// A machine without a Neural Engine.
    pub fn without_neural_engine(mut self) -> Self {
        self.properties.has_neural_engine = Some(false);
        self
    }

    /// A machine that uses no offered memory: outputs are its own arrays, with `gap` elements
    /// between their rows.
    pub fn with_gaps(mut self, gap: usize) -> Self {
        self.gap = Some(gap);
        self
    }

    /// The `nth` call of this kind from now on, counted from 0, fails.
    pub fn fail(&self, call: Call, nth: usize, fault: Fault) {
        let mut state = self.state();
        let nth = state.calls.get(&call).copied().unwrap_or_default() + nth;
        state.faults.push((call, nth, fault));
    }

    /// Number of such calls.
    pub fn calls(&self, call: Call) -> usize {
        self.state().calls.get(&call).copied().unwrap_or_default()
    }

    /// The units that the last model was loaded for.
    pub fn units(&self) -> Option<ComputeUnits> {
        self.state().units
    }

    /// Calls of this kind block until they are [released](Self::release).
    pub fn hold(&self, call: Call) {
        self.state().held = Some(call);
    }

    /// Blocked calls continue.
    pub fn release(&self) {
        self.state().held = None;
        self.released.notify_all();
    }

    /// Addresses of the memory that arrays were made over.
    pub fn arrays(&self) -> BTreeSet<usize> {
        self.state().arrays.clone()
    }

    /// Number of surfaces that were made.
    pub fn surfaces(&self) -> usize {
        self.state().surfaces
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call; the fault that was set for it.
    fn begin(&self, call: Call) -> Option<Fault> {
        let mut state = self.state();
        let count = state.calls.entry(call).or_default();
        let nth = *count;
        *count += 1;
        let held = |state: &mut State| state.held == Some(call);
        let state = self.released.wait_while(state, held);
        let state = state.unwrap_or_else(PoisonError::into_inner);
        let found = state.faults.iter().find(|f| (f.0, f.1) == (call, nth));
        found.map(|fault| fault.2)
    }

    /// [`Self::begin`] of a call that nobody can wait for with a limit.
    fn succeed(&self, call: Call) -> Result<(), ModelError> {
        match self.begin(call) {
            None => Ok(()),
            Some(Fault::Hang) => loop {
                std::thread::park();
            },
            Some(Fault::Abort) => std::process::abort(),
            Some(fault) => Err(fault.error()),
        }
    }
}

impl Fault {
    fn error(self) -> ModelError {
        let code = match self {
            Self::Code(code) => code,
            Self::OutOfMemory | Self::Hang | Self::Abort => 0,
        };
        ModelError {
            is_out_of_memory: self == Self::OutOfMemory,
            ..ModelError::new(code, "injected")
        }
    }
}

fn generic(e: impl ToString) -> ModelError {
    ModelError::new(0, e)
}

impl Api for Emulated {
    type Model = Arc<Model>;
    type Array = Array;
    type State = States;
    type Pending = Pending;

    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn compile(&self, package: &Path, to: &Path) -> Result<(), ModelError> {
        self.succeed(Call::Compile)?;
        Model::read(package).map_err(generic)?;
        copy(package, to).map_err(generic)
    }

    fn load(&self, compiled: &Path, units: ComputeUnits) -> Result<Self::Model, ModelError> {
        self.succeed(Call::Load)?;
        self.state().units = Some(units);
        let model = Model::read(compiled).map_err(generic)?;
        model.new_states().map_err(generic)?;
        Ok(Arc::new(model))
    }

    /// The Neural Engine if it may be used, else the GPU, for all but constants.
    fn preferences(
        &self,
        compiled: &Path,
        units: ComputeUnits,
    ) -> Result<Vec<(String, Option<ComputeUnit>)>, ModelError> {
        let has_engine = self.properties.has_neural_engine != Some(false);
        let unit = match units {
            ComputeUnits::CpuAndNeuralEngine => ComputeUnit::NeuralEngine,
            ComputeUnits::All if has_engine => ComputeUnit::NeuralEngine,
            ComputeUnits::All | ComputeUnits::CpuAndGpu => ComputeUnit::Gpu,
            ComputeUnits::CpuOnly => ComputeUnit::Cpu,
        };
        let model = Model::read(compiled).map_err(generic)?;
        let preference = |name: &str| (name.to_owned(), (name != "const").then_some(unit));
        Ok(model.operations().map(preference).collect())
    }

    unsafe fn array(
        &self,
        memory: &HostBuffer,
        shape: &[usize],
        elements: ArrayDataType,
    ) -> Result<Array, ModelError> {
        self.succeed(Call::Array)?;
        if shape.is_empty() || shape.contains(&0) {
            return Err(generic(format!("no array is {shape:?}")));
        }
        let array = Array {
            memory: memory.clone(),
            shape: shape.to_vec(),
            strides: strides(shape, 0),
            elements,
        };
        match array.extent() <= memory.bytes() {
            true => {
                self.state().arrays.insert(memory.as_ptr().addr());
                Ok(array)
            }
            false => Err(generic("an array beyond its memory")),
        }
    }

    /// Rows begin at multiples of 64 bytes: for shape `[2, 3, 4]` the strides are `[96, 32, 1]`.
    fn surface(&self, shape: &[usize]) -> Option<Array> {
        let width = *shape.last()?;
        let gap = width.next_multiple_of(32) - width;
        let array = Array::with_gap(shape, ArrayDataType::Float16, gap).ok()?;
        self.state().surfaces += 1;
        Some(array)
    }

    fn new_state(&self, model: &Arc<Model>) -> States {
        let states = model.new_states();
        Arc::new(Mutex::new(states.expect("it was loaded with these states")))
    }

    fn fill(&self, states: &States, name: &str, from: &[u8]) -> Result<(), ModelError> {
        self.succeed(Call::Fill)?;
        let mut states = states.lock().unwrap_or_else(PoisonError::into_inner);
        let state = states.get_mut(name);
        let state = state.ok_or_else(|| generic(format!("no state {name:?}")))?;
        let halves = from.as_chunks().0.iter().map(|&x| f16::from_le_bytes(x));
        let filled = Tensor::floats(
            state.data_type,
            &state.shape,
            halves.map(f64::from).collect(),
        );
        match from.len() == 2 * filled.count() {
            true => {
                *state = filled;
                Ok(())
            }
            false => Err(generic("a state of another size")),
        }
    }

    /// Offered memory holds nothing of use until a wait.
    fn predict(
        &self,
        model: &Arc<Model>,
        inputs: Vec<(String, Array)>,
        outputs: Vec<(String, Array)>,
        states: Option<&States>,
    ) -> Pending {
        for (_, output) in &outputs {
            output.fill(0xFF);
        }
        Pending {
            model: model.clone(),
            inputs,
            outputs,
            states: states.cloned(),
        }
    }

    fn wait(
        &self,
        pending: Pending,
        limit: Option<Duration>,
    ) -> Option<Result<Vec<Output<Array>>, ModelError>> {
        match (self.begin(Call::Predict), limit) {
            (None, _) => Some(self.evaluate(pending)),
            (Some(Fault::Hang), Some(_)) => None,
            (Some(Fault::Hang), None) => loop {
                std::thread::park();
            },
            (Some(Fault::Abort), _) => std::process::abort(),
            (Some(fault), _) => Some(Err(fault.error())),
        }
    }

    fn read(&self, array: &Array, to: &mut [u8]) -> Result<(), ModelError> {
        self.succeed(Call::Read)?;
        let size = array.size();
        let mut chunks = to.chunks_exact_mut(size);
        array.each(|at| {
            if let Some(chunk) = chunks.next() {
                array.load(at, chunk);
            }
        });
        Ok(())
    }

    fn write(&self, array: &Array, from: &[u8]) -> Result<(), ModelError> {
        let mut elements = from.chunks_exact(array.size());
        array.each(|at| {
            if let Some(element) = elements.next() {
                array.put(at, element);
            }
        });
        Ok(())
    }
}

impl Emulated {
    fn evaluate(&self, pending: Pending) -> Result<Vec<Output<Array>>, ModelError> {
        let inputs = pending.inputs.iter();
        let inputs = inputs.map(|(name, array)| (name.clone(), array.to_tensor()));
        let states = pending.states.unwrap_or_default();
        let mut states = states.lock().unwrap_or_else(PoisonError::into_inner);
        let results = pending.model.predict_with(&inputs.collect(), &mut states);
        let results =
            results.map_err(|Error { place, what }| generic(format!("{place}: {what}")))?;
        if results.len() != pending.outputs.len() {
            return Err(generic("outputs that the program has not"));
        }
        let offered = pending.outputs.into_iter().zip(results);
        offered
            .map(|((_, offered), result)| match self.gap {
                None => offered.store(&result).map(|()| Output::Offered),
                Some(gap) => {
                    let own = Array::with_gap(&result.shape, offered.elements, gap)?;
                    own.store(&result)?;
                    Ok(Output::Own(own))
                }
            })
            .collect()
    }
}

/// Steps of an array whose rows have a gap behind them, in elements.
fn strides(shape: &[usize], gap: usize) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for d in (1..shape.len()).rev() {
        let row = if d + 1 == shape.len() { gap } else { 0 };
        strides[d - 1] = strides[d] * shape[d] + row;
    }
    strides
}

impl Array {
    /// An array of Core ML's own, full of NaN.
    fn with_gap(shape: &[usize], elements: ArrayDataType, gap: usize) -> Result<Self, ModelError> {
        let mut array = Self {
            memory: HostBuffer::zeroed(0).ok_or_else(|| generic("no memory"))?,
            shape: shape.to_vec(),
            strides: strides(shape, gap),
            elements,
        };
        array.memory = HostBuffer::uninit(array.extent()).ok_or_else(|| generic("no memory"))?;
        array.fill(0xFF);
        Ok(array)
    }

    /// Bytes of an element.
    fn size(&self) -> usize {
        match self.elements {
            ArrayDataType::Float16 => 2,
            _ => 4,
        }
    }

    /// Bytes up to the end of the last element.
    fn extent(&self) -> usize {
        let steps = self.shape.iter().zip(&self.strides);
        let last: usize = steps.map(|(size, stride)| (size - 1) * stride).sum();
        (last + 1) * self.size()
    }

    fn data_type(&self) -> DataType {
        match self.elements {
            ArrayDataType::Float16 => DataType::Float16,
            ArrayDataType::Int32 => DataType::Int32,
            _ => DataType::Float32,
        }
    }

    /// Calls `body` with the byte of each element, in order.
    fn each(&self, mut body: impl FnMut(usize)) {
        let visit = |index: &[usize]| {
            let steps = index.iter().zip(&self.strides);
            body(steps.map(|(i, stride)| i * stride).sum::<usize>() * self.size());
            Ok(())
        };
        // `visit` never fails.
        let _ = tensor::for_each_index(&self.shape, visit);
    }

    fn load(&self, at: usize, to: &mut [u8]) {
        // SAFETY: who made the array promised that nobody writes to it now.
        let read = unsafe { self.memory.read(at, to) };
        read.expect("an element is inside of its array");
    }

    fn put(&self, at: usize, from: &[u8]) {
        // SAFETY: who made the array promised that nobody else uses it now.
        let written = unsafe { self.memory.write(at, from) };
        written.expect("an element is inside of its array");
    }

    fn fill(&self, byte: u8) {
        let element = vec![byte; self.size()];
        self.each(|at| self.put(at, &element));
    }

    fn to_tensor(&self) -> Tensor {
        let mut elements = Vec::new();
        self.each(|at| {
            let mut bytes = [0; 4];
            self.load(at, &mut bytes[..self.size()]);
            elements.push(bytes);
        });
        let elements = elements.into_iter();
        let floats = |of: fn([u8; 4]) -> f64| {
            Tensor::floats(
                self.data_type(),
                &self.shape,
                elements.clone().map(of).collect(),
            )
        };
        match self.elements {
            ArrayDataType::Int32 => {
                let ints = elements.clone().map(|x| i32::from_le_bytes(x).into());
                Tensor::ints(DataType::Int32, &self.shape, ints.collect())
            }
            ArrayDataType::Float16 => floats(|[a, b, ..]| f16::from_le_bytes([a, b]).to_f64()),
            _ => floats(|x| f32::from_le_bytes(x).into()),
        }
    }

    /// Writes a result to the array.
    fn store(&self, result: &Tensor) -> Result<(), ModelError> {
        if result.shape != self.shape || result.data_type != self.data_type() {
            let message = format!("{:?} for an array {:?}", result.shape, self.shape);
            return Err(ModelError::new(1, message));
        }
        let mut bytes: Vec<Vec<u8>> = Vec::with_capacity(result.count());
        match self.elements {
            ArrayDataType::Int32 => {
                let ints = result.as_ints().map_err(generic)?.iter();
                bytes.extend(ints.map(|&x| (x as i32).to_le_bytes().to_vec()));
            }
            ArrayDataType::Float16 => {
                let floats = result.as_floats().map_err(generic)?.iter();
                bytes.extend(floats.map(|&x| f16::from_f64(x).to_le_bytes().to_vec()));
            }
            _ => {
                let floats = result.as_floats().map_err(generic)?.iter();
                bytes.extend(floats.map(|&x| (x as f32).to_le_bytes().to_vec()));
            }
        }
        let mut bytes = bytes.iter();
        self.each(|at| {
            if let Some(bytes) = bytes.next() {
                self.put(at, bytes);
            }
        });
        Ok(())
    }
}

/// Copies a folder.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy(&entry.path(), &target)?,
            false => fs::copy(entry.path(), target).map(|_| ())?,
        }
    }
    Ok(())
}
