//! What is asked of Core ML, call by call: all that only a Mac can run is an implementation of
//! this.

use std::fmt::{self, Debug};
use std::path::Path;
use std::time::Duration;

use rustorch_runtime::HostBuffer;

use crate::proto::model::ArrayDataType;

/// What the system says of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Properties {
    /// The machine's processor.
    pub name: String,
    /// The system and its version, as text.
    pub system: String,
    /// The first number of macOS's version.
    pub macos: u32,
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

/// Why a call failed: a code of `MLModelError`, and the text.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("Core ML: {message} ({code})")]
pub struct ModelError {
    /// The code.
    pub code: isize,
    /// `localizedDescription`.
    pub message: String,
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
    /// An `MLMultiArray`.
    type Array: Send + Debug + 'static;
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

    /// Begins a prediction: inputs by their names, and arrays that are offered for outputs
    /// (`outputBackings`), of which Core ML need not make use.
    fn predict(
        &self,
        model: &Self::Model,
        inputs: Vec<(String, Self::Array)>,
        outputs: Vec<(String, Self::Array)>,
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
}
