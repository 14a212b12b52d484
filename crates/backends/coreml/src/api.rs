//! Calls to Core ML: an implementation of this trait is all that only a Mac can run.

use std::fmt::{self, Debug};
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use rustorch_runtime::{Compilation, FailureClass, HostBuffer};

use crate::opset::Opset;
use crate::proto::model::ArrayDataType;

/// Properties of the system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Properties {
    /// The machine's processor.
    pub name: String,
    /// The system and its version, as text.
    pub system: String,
    /// The operations that its version knows; `None` without ML Programs.
    pub opset: Option<Opset>,
    /// Whether the machine has a Neural Engine for Core ML. `None` if the system does not report it.
    pub has_neural_engine: Option<bool>,
    /// Cost of compiling; `None` if it is no larger than elsewhere.
    pub compilation: Option<Compilation>,
}

impl Properties {
    /// A machine with this processor and system. Intel's processors have no Neural Engine; for
    /// others the system is asked.
    pub fn new(
        processor: String,
        system: String,
        opset: Option<Opset>,
        has_neural_engine: Option<bool>,
    ) -> Self {
        let is_intel = processor.starts_with("Intel");
        Self {
            name: processor,
            system,
            opset,
            has_neural_engine: if is_intel {
                Some(false)
            } else {
                has_neural_engine
            },
            compilation: None,
        }
    }
}

/// The units that Core ML may choose from: `MLComputeUnits`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum ComputeUnits {
    /// All units.
    #[default]
    All,
    /// The processor and the Neural Engine.
    CpuAndNeuralEngine,
    /// The processor and the GPU.
    CpuAndGpu,
    /// The processor.
    CpuOnly,
}

impl ComputeUnits {
    /// Every choice.
    pub const ALL: [Self; 4] = [
        Self::All,
        Self::CpuAndNeuralEngine,
        Self::CpuAndGpu,
        Self::CpuOnly,
    ];
}

impl fmt::Display for ComputeUnits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::All => "all",
            Self::CpuAndNeuralEngine => "cpu-and-ne",
            Self::CpuAndGpu => "cpu-and-gpu",
            Self::CpuOnly => "cpu",
        })
    }
}

impl FromStr for ComputeUnits {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL
            .into_iter()
            .find(|units| units.to_string() == text);
        found.ok_or_else(|| {
            format!(
                "expected {}",
                Self::ALL.map(|units| units.to_string()).join(", ")
            )
        })
    }
}

/// One of a machine's units: a class that has the protocol `MLComputeDeviceProtocol`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ComputeUnit {
    /// The processor.
    Cpu,
    /// The GPU.
    Gpu,
    /// The Neural Engine.
    NeuralEngine,
}

impl fmt::Display for ComputeUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpu => "CPU",
            Self::Gpu => "GPU",
            Self::NeuralEngine => "Neural Engine",
        })
    }
}

/// The reason of a failed call: an error's code and text.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("Core ML: {message} ({code})")]
pub struct ModelError {
    /// The code, of `MLModelError` or of another domain.
    pub code: isize,
    /// `localizedDescription`.
    pub message: String,
    /// Whether memory was refused.
    pub is_out_of_memory: bool,
}

impl ModelError {
    /// Any error except a lack of memory.
    pub fn new(code: isize, message: impl ToString) -> Self {
        Self {
            code,
            message: message.to_string(),
            is_out_of_memory: false,
        }
    }

    /// Answer to the error: if memory is short, free some and try once more; else nothing more on
    /// this device.
    pub(crate) fn class(&self) -> FailureClass {
        match self.is_out_of_memory {
            true => FailureClass::OutOfMemory { never_fits: false },
            false => FailureClass::Unsupported,
        }
    }
}

/// Place of an output.
pub enum Output<A> {
    /// In the memory that was offered for it.
    Offered,
    /// In an array of Core ML's own, which may have gaps between its rows.
    Own(A),
}

/// Core ML.
///
/// An array keeps the memory that it was given, and a prediction keeps its arrays.
pub trait Api: Send + Sync + Sized + 'static {
    /// A loaded `MLModel`.
    type Model: Send + Sync + 'static;
    /// A handle on an `MLMultiArray`.
    type Array: Clone + Send + Debug + 'static;
    /// An `MLState`: state that a model keeps from one prediction to the next.
    type State: Send + 'static;
    /// A prediction that was begun.
    type Pending: Send + 'static;

    /// Properties of the system.
    fn properties(&self) -> &Properties;

    /// `compileModelAtURL`, whose result is moved to `to`, which is not there yet.
    ///
    /// # Errors
    /// Fails if Core ML rejects the package, or if a folder cannot be written.
    fn compile(&self, package: &Path, to: &Path) -> Result<(), ModelError>;

    /// `modelWithContentsOfURL:configuration:` of a compiled model.
    ///
    /// # Errors
    /// Fails if Core ML rejects the model.
    fn load(&self, compiled: &Path, units: ComputeUnits) -> Result<Self::Model, ModelError>;

    /// The unit on which Core ML would run each operation of a compiled model, with the operation's
    /// name (`MLComputePlan`). Operations come in the program's order. The unit is a preference,
    /// not a record of where it ran. Empty if the system does not report them; `None` for an
    /// operation without one.
    ///
    /// # Errors
    /// Fails if Core ML rejects the model.
    fn preferences(
        &self,
        compiled: &Path,
        units: ComputeUnits,
    ) -> Result<Vec<(String, Option<ComputeUnit>)>, ModelError>;

    /// `initWithDataPointer:shape:dataType:strides:deallocator:`: host memory in place, row-major
    /// without gaps.
    ///
    /// # Safety
    /// While a prediction uses the array as an input, nothing writes to the memory. While a
    /// prediction uses it as an output, nothing else uses it.
    ///
    /// # Errors
    /// Fails if Core ML reports an error.
    unsafe fn array(
        &self,
        memory: &HostBuffer,
        shape: &[usize],
        elements: ArrayDataType,
    ) -> Result<Self::Array, ModelError>;

    /// An array of halves in memory of Core ML's own, a pixel buffer over an IOSurface
    /// (`initWithPixelBuffer:shape:`). All units share it without a copy; its rows have gaps between
    /// them. `None` if there is no such memory.
    fn surface(&self, shape: &[usize]) -> Option<Self::Array>;

    /// `newState` of a model that has states. They hold zeros.
    fn new_state(&self, model: &Self::Model) -> Self::State;

    /// Sets the elements of a named state, all of its halves in order, while no prediction uses it
    /// (`getMultiArrayForStateNamed:handler:`).
    ///
    /// # Errors
    /// Fails if Core ML reports an error.
    fn fill(&self, state: &Self::State, name: &str, from: &[u8]) -> Result<(), ModelError>;

    /// Begins a prediction. Inputs come by their names. Arrays are offered for outputs
    /// (`outputBackings`); Core ML need not use them. A model with states gets its state, and has one
    /// prediction at a time.
    fn predict(
        &self,
        model: &Self::Model,
        inputs: Vec<(String, Self::Array)>,
        outputs: Vec<(String, Self::Array)>,
        state: Option<&Self::State>,
    ) -> Self::Pending;

    /// Waits until a prediction is complete, at most for `limit`. Returns the locations of its
    /// outputs, in the order of the offered arrays. `None` if it is not complete; it may then
    /// continue.
    fn wait(
        &self,
        pending: Self::Pending,
        limit: Option<Duration>,
    ) -> Option<Result<Vec<Output<Self::Array>>, ModelError>>;

    /// Copies the elements of an array, which lie by its strides, to `to`, which has as many bytes.
    ///
    /// # Errors
    /// Fails if Core ML reports an error.
    fn read(&self, array: &Self::Array, to: &mut [u8]) -> Result<(), ModelError>;

    /// Copies elements to an array that no prediction uses, by the strides of the array. `from` has the
    /// bytes of all elements.
    ///
    /// # Errors
    /// Fails if Core ML reports an error.
    fn write(&self, array: &Self::Array, from: &[u8]) -> Result<(), ModelError>;
}
