//! A tensor runtime with PyTorch's names. Programs run on the devices that a machine has. If a
//! device lacks an operation or fails at it, the next device runs it.
//!
//! ```
//! use rustorch::prelude::*;
//!
//! # fn main() -> RusTorchResult<()> {
//! let x = tensor![[1.0, 2.0], [3.0, 4.0]];
//! let weight = Tensor::eye(2, DType::F32)?;
//! // Shapes and dtypes are checked here; nothing is computed yet.
//! let y = (x.linear(&weight, None)? + 1.0)?.relu()?;
//! assert_eq!(y.shape(), [2, 2]);
//! // Asking for values plans the computation and runs it.
//! assert_eq!(y.to_vec::<f32>()?, [2.0, 3.0, 4.0, 5.0]);
//! // An error says which method failed, at which line, and why.
//! let error = x.matmul(&tensor![1.0, 2.0, 3.0]).unwrap_err().to_string();
//! let (place, what) = error.split_once(": ").unwrap_or_default();
//! assert!(place.starts_with("matmul at "), "{place}");
//! assert_eq!(what, "expected equal inner sizes, got f32[2, 2] and f32[3, 1]");
//! # Ok(())
//! # }
//! ```
//!
//! - [`Tensor`] has the operations; [`tensor!`] and its associated functions make tensors.
//! - [`Trace`] records a computation once and runs it often, with state that is updated in
//!   place.
//! - [`Runtime`] owns the devices. A default runtime with all of them is made when it is first
//!   needed ([`runtime()`]). [`with_runtime`] chooses another one, or certain devices.
//! - [`Tensor::to_device`], [`set_device`] and [`GpuContext`] choose devices; [`HybridExecutor`]
//!   returns the runtime's own choice. `gpu_matmul` and similar functions prefer a GPU;
//!   [`hybrid_operation`] tries a closure on one device after the other.
//! - `F32Tensor` (feature `hybrid-f32`) is a tensor whose type says that it is `f32`.
//!   `F32HybridExecutor` spreads operations on such tensors over the devices without a conversion,
//!   and reports that.
//!
//! - `nn`, `optim` and `train` (feature `nn`) have layers, losses, initialisers, optimisers and training steps;
//!   [`amp`] is mixed precision.
//! - `profiler` (feature `profile`) records what ran when, and for how long.
//! - `data` (feature `data`) has data sets, readers, transforms and loaders.
//! - [`options`] is an index of the option structures.
//! - `llm` (feature `llm`) runs language models, many texts at once if asked for.
//! - `files` (feature `files`) reads and writes safetensors, NumPy's, PyTorch's and GGUF files.
//! - `onnx` (feature `onnx`) reads ONNX files and runs them.
//!
//! A device that fails hands its work to the next one. [`Runtime::fallbacks`] reports the failures,
//! and [`Executable::explain`] the device of each operation, with the reason.

pub use rustorch_ir::ops::{Composite, Rope, RopeLayout, RopeScaling};
pub use rustorch_ir::{
    BlockFormat, DType, ErrorKind, GpuDevice, Graph, Layout, OpError, OpKind, Param, Scalar, Shape,
    TensorType, UnknownDevice,
};
pub use rustorch_runtime::{
    Absent, AccessCounters, Backend, Copied, Costs, DeviceCapability, DeviceError, DeviceInfo,
    DeviceSelector, DeviceType, Estimate, Executable, Explanation, FailureClass, Fallback,
    FaultStatistics, GpuExecutionStrategy, Hardware, HostBuffer, HostPoolCounters, Loaded,
    MemoryManager, Moved, NodeNote, OpType, PlanCounters, PoolUsage, Reason, Route, RouteTraffic,
    Routing, Rules, RunError, Runtime, Storage, Support, TensorInfo, TransferMethod, WorkingMemory,
};
pub use rustorch_tensor::half::{bf16, f16};
pub use rustorch_tensor::*;

#[cfg(feature = "data")]
pub use rustorch_data as data;
#[cfg(feature = "files")]
pub use rustorch_files as files;
#[cfg(feature = "llm")]
pub use rustorch_llm as llm;
#[cfg(feature = "nn")]
pub use rustorch_nn::{nn, optim, train};
#[cfg(feature = "onnx")]
pub use rustorch_onnx as onnx;

pub mod options;

/// Automatic mixed precision: `torch.amp`.
pub mod amp {
    #[cfg(feature = "nn")]
    pub use rustorch_nn::amp::GradScaler;
    pub use rustorch_tensor::amp::*;
}

/// Traits for your own operations: see `docs/custom.md`.
pub mod custom {
    pub use rustorch_ir::autodiff::{Cotangents, Differentiated, not_differentiable};
    pub use rustorch_ir::ops::{
        ActivationKind, BinaryOp, CompareOp, Composite, CustomKernel, HostArray, HostArrayMut,
        HostFunction, KernelLanguage, ReduceOp, UnaryOp,
    };
    pub use rustorch_ir::{
        DType, Graph, OpError, ResultTypes, Results, Shape, TensorType, ValueId,
    };
    pub use rustorch_tensor::KernelCheck;
}

/// Traits for your own backend: see `docs/custom.md`.
pub mod backend {
    pub use rustorch_ir::{
        DType, Graph, Layout, Node, Op, OpKind, OpType, Role, Shape, Signature, TensorType,
        ValueId, ops,
    };
    pub use rustorch_runtime::{
        Backend, Compilation, DeviceBuffer, DeviceError, DeviceInfo, DeviceMemory, DeviceType,
        FailureClass, Fetch, Hardware, HostBuffer, HostMemory, KernelEntry, KernelTable, Kernels,
        Layouts, Lowered, Place, Probe, Program, Scratch, Slot, Step, lower,
    };
}

/// The names that most programs need: `use rustorch::prelude::*`.
pub mod prelude {
    #[cfg(feature = "files")]
    pub use crate::files::TensorFile;
    pub use crate::nn::{AvgPoolOptions, ConvOptions, ConvTransposeOptions, MaxPoolOptions};
    pub use crate::num_complex::Complex;
    pub use crate::{
        AsOperand, AttentionOptions, DType, DeviceType, Element, Ellipsis, GradOptions, Index,
        IntoDims, IntoShape, IntoSizes, NewAxis, Number, Rope, RopeLayout, RopeScaling, Routing,
        Runtime, RusTorchError, RusTorchResult, Scalar, Storage, Tensor, Trace, assert_close, bf16,
        current_device, eval_all, f16, is_gpu_available, manual_seed, nn, no_grad, runtime,
        set_device, tensor, with_device, with_runtime,
    };
}

/// The examples of the README, which are compiled and run with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The examples of the guide for users of PyTorch.
#[cfg(doctest)]
#[doc = include_str!("../docs/pytorch.md")]
struct PyTorchGuide;

/// The examples of the guide to operations and devices of one's own.
#[cfg(doctest)]
#[doc = include_str!("../docs/custom.md")]
struct CustomGuide;

/// The examples of the guide to gradients.
#[cfg(doctest)]
#[doc = include_str!("../docs/gradients.md")]
struct GradientsGuide;

/// The example of the guide to data.
#[cfg(all(doctest, feature = "data"))]
#[doc = include_str!("../docs/data.md")]
struct DataGuide;

/// The examples of the guide to several devices.
#[cfg(all(doctest, feature = "nn"))]
#[doc = include_str!("../docs/distributed.md")]
struct DistributedGuide;

/// The examples of the book.
#[cfg(doctest)]
mod book {
    #[doc = include_str!("../docs/book/src/first-steps.md")]
    struct FirstSteps;
    #[doc = include_str!("../docs/book/src/laziness.md")]
    struct Laziness;
    #[doc = include_str!("../docs/book/src/failing-over.md")]
    struct FailingOver;
    #[doc = include_str!("../docs/book/src/dtypes.md")]
    struct Dtypes;
    #[doc = include_str!("../docs/book/src/errors.md")]
    struct Errors;
    #[doc = include_str!("../docs/book/src/porting.md")]
    struct Porting;
}

/// The example of the guide to `f32`.
#[cfg(all(doctest, feature = "hybrid-f32"))]
#[doc = include_str!("../docs/f32.md")]
struct F32Guide;

/// The example of files of tensors.
#[cfg(all(doctest, feature = "files"))]
#[doc = include_str!("../docs/files.md")]
struct FilesGuide;

/// The example of ONNX files.
#[cfg(all(doctest, feature = "onnx"))]
#[doc = include_str!("../docs/onnx.md")]
struct OnnxGuide;

/// The examples of profiling.
#[cfg(all(doctest, feature = "profile"))]
#[doc = include_str!("../docs/profiling.md")]
struct ProfilingGuide;

/// The example of resuming.
#[cfg(all(doctest, feature = "nn", feature = "data"))]
#[doc = include_str!("../docs/resuming.md")]
struct ResumingGuide;

/// The example of threads.
#[cfg(doctest)]
#[doc = include_str!("../docs/threads.md")]
struct ThreadsGuide;

/// The example of seeds.
#[cfg(all(doctest, feature = "nn"))]
#[doc = include_str!("../docs/seeds.md")]
struct SeedsGuide;

/// The examples of modules and optimisers.
#[cfg(all(doctest, feature = "nn"))]
#[doc = include_str!("../docs/nn.md")]
struct ModuleGuide;
