//! What is asked of Core ML, call by call: all that only a Mac can run is an implementation of
//! this.

use std::fmt::{self, Debug};
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use rustorch_runtime::{Compilation, FailureClass, HostBuffer};

use crate::opset::Opset;
use crate::proto::model::ArrayDataType;

/// What the system says of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Properties {
    /// The machine's processor.
    pub name: String,
    /// The system and its version, as text.
    pub system: String,
    /// The operations that its version knows; `None` of one without ML Programs.
    pub opset: Option<Opset>,
    /// Has the machine a Neural Engine that Core ML may use? `None` if the system does not tell.
    pub has_neural_engine: Option<bool>,
    /// What compiling takes; `None` if that is no longer than elsewhere.
    pub compilation: Option<Compilation>,
}

impl Properties {
    /// A machine with this processor, and this system of which it is asked whether there is a Neural
    /// Engine: with Intel's processors there is none, also where the system does not tell.
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
    /// All.
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

/// Why a call failed: an error's code, and its text.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("Core ML: {message} ({code})")]
pub struct ModelError {
    /// The code, of `MLModelError` or of another domain.
    pub code: isize,
    /// `localizedDescription`.
    pub message: String,
    /// Does it come from memory that was refused?
    pub is_out_of_memory: bool,
}

impl ModelError {
    /// An error of any kind but the lack of memory.
    pub fn new(code: isize, message: impl ToString) -> Self {
        Self {
            code,
            message: message.to_string(),
            is_out_of_memory: false,
        }
    }

    /// What to do about it: where there is no memory, free some and try once more; else nothing on
    /// this device.
    pub(crate) fn class(&self) -> FailureClass {
        match self.is_out_of_memory {
            true => FailureClass::OutOfMemory { never_fits: false },
            false => FailureClass::Unsupported,
        }
    }
}

/// Where an output is.
pub enum Output<A> {
    /// In the memory that was offered for it.
    Offered,
    /// In an array of Core ML's own, which may have gaps between its rows.
    Own(A),
}

/// Core ML.
///
/// Memory that is given to an array is kept by it, and the array by the prediction it takes part in.
pub trait Api: Send + Sync + Sized + 'static {
    /// A loaded `MLModel`.
    type Model: Send + Sync + 'static;
    /// A handle on an `MLMultiArray`.
    type Array: Clone + Send + Debug + 'static;
    /// An `MLState`: what a model keeps from one prediction to the next.
    type State: Send + 'static;
    /// A prediction that was begun.
    type Pending: Send + 'static;

    /// What the system says of itself.
    fn properties(&self) -> &Properties;

    /// `compileModelAtURL`, whose result is moved to `to`, which is not there yet.
    ///
    /// # Errors
    /// Core ML does not take the package, or a folder cannot be written.
    fn compile(&self, package: &Path, to: &Path) -> Result<(), ModelError>;

    /// `modelWithContentsOfURL:configuration:` of a compiled model.
    ///
    /// # Errors
    /// Core ML does not take the model.
    fn load(&self, compiled: &Path, units: ComputeUnits) -> Result<Self::Model, ModelError>;

    /// Which unit Core ML would have each operation of a compiled model run on, in the program's
    /// order, with the operation's name (`MLComputePlan`). That is a preference, and no word about
    /// what ran where. Empty where the system does not tell; `None` of an operation that it does not
    /// tell it of.
    ///
    /// # Errors
    /// Core ML does not take the model.
    fn preferences(
        &self,
        compiled: &Path,
        units: ComputeUnits,
    ) -> Result<Vec<(String, Option<ComputeUnit>)>, ModelError>;

    /// `initWithDataPointer:shape:dataType:strides:deallocator:`: host memory in place, row-major
    /// without gaps.
    ///
    /// # Safety
    /// While a prediction uses the array as an input nobody writes to the memory; while one does as
    /// an output, nobody else uses it. It has the array's bytes.
    ///
    /// # Errors
    /// Core ML refuses.
    unsafe fn array(
        &self,
        memory: &HostBuffer,
        shape: &[usize],
        elements: ArrayDataType,
    ) -> Result<Self::Array, ModelError>;

    /// An array of halves in memory of Core ML's own, which all units share without a copy, rows with
    /// gaps between them: a pixel buffer over an IOSurface (`initWithPixelBuffer:shape:`). `None` where
    /// there is none.
    fn surface(&self, shape: &[usize]) -> Option<Self::Array>;

    /// `newState` of a model that has states. They hold zeros.
    fn new_state(&self, model: &Self::Model) -> Self::State;

    /// Has the state of a name, while no prediction uses it, hold these elements: all of its halves, in
    /// order (`getMultiArrayForStateNamed:handler:`).
    ///
    /// # Errors
    /// Core ML refuses.
    fn fill(&self, state: &Self::State, name: &str, from: &[u8]) -> Result<(), ModelError>;

    /// Begins a prediction: inputs by their names, arrays that are offered for outputs
    /// (`outputBackings`), of which Core ML need not make use, and the state of a model that has states,
    /// of which it is the only prediction.
    fn predict(
        &self,
        model: &Self::Model,
        inputs: Vec<(String, Self::Array)>,
        outputs: Vec<(String, Self::Array)>,
        state: Option<&Self::State>,
    ) -> Self::Pending;

    /// Waits until a prediction is complete, but no longer than `limit`: where its outputs are, in
    /// the order in which arrays were offered for them. `None` if it is not complete; it may then go
    /// on.
    fn wait(
        &self,
        pending: Self::Pending,
        limit: Option<Duration>,
    ) -> Option<Result<Vec<Output<Self::Array>>, ModelError>>;

    /// Copies the elements of an array, which lie by its strides, to `to`, which has as many bytes.
    ///
    /// # Errors
    /// Core ML refuses.
    fn read(&self, array: &Self::Array, to: &mut [u8]) -> Result<(), ModelError>;

    /// Copies elements, of which `from` has as many bytes, to where they lie by the strides of an array
    /// that no prediction uses.
    ///
    /// # Errors
    /// Core ML refuses.
    fn write(&self, array: &Self::Array, from: &[u8]) -> Result<(), ModelError>;
}
