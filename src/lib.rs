//! A tensor runtime with PyTorch's names whose programs run on the best device a machine
//! has, operation by operation.
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
//! // What does not fit is an error that says what, at the line that asked for it.
//! let error = x.matmul(&tensor![1.0, 2.0, 3.0]).unwrap_err();
//! assert_eq!(
//!     error.to_string(),
//!     "matmul: expected equal inner sizes, got f32[2, 2] and f32[3, 1]"
//! );
//! # Ok(())
//! # }
//! ```
//!
//! - [`Tensor`] has the operations; [`tensor!`] and its associated functions make tensors.
//! - [`Trace`] records a computation once and runs it often, with state that is updated in
//!   place.
//! - [`Runtime`] owns the devices. One of all of them is made when it is first needed
//!   ([`runtime()`]); [`with_runtime`] chooses another, or certain devices.
//! - [`Tensor::to_device`], [`set_device`] and [`GpuContext`] say where things go;
//!   [`HybridExecutor`] tells where they would go by themselves. `gpu_matmul` and its kin prefer a
//!   GPU; [`hybrid_operation`] tries a closure on one device after the other.
//! - `F32Tensor` (feature `hybrid-f32`) is `f32` by its type; `F32HybridExecutor` spreads such
//!   tensors' operations over the devices without a conversion, and reports that.
//!
//! A device that fails hands its work to the next one; [`Runtime::fallbacks`] tells what
//! happened, and [`Executable::explain`] where each operation goes and why.

pub use rustorch_ir::ops::{Rope, RopeLayout, RopeScaling};
pub use rustorch_ir::{BlockFormat, DType, F8E4M3, F8E5M2, OpError, Param, Scalar, TensorType};
pub use rustorch_runtime::{
    Absent, AccessCounters, Costs, DeviceCapability, DeviceError, DeviceInfo, DeviceSelector,
    DeviceType, Executable, Explanation, FailureClass, Fallback, FaultStatistics, GpuDevice,
    GpuExecutionStrategy, HostBuffer, MemoryManager, OpType, Route, Routing, Rules, RunError,
    Runtime, Storage, TensorInfo, TransferMethod,
};
pub use rustorch_tensor::{
    Activity, AttentionOptions, DeviceManager, DeviceOptions, Dims, Discovered, Element,
    GpuContext, HybridExecutor, Operand, RusTorchError, RusTorchResult, Sizes, Tensor, Trace,
    backends, current_device, discover, eval_all, is_coreml_available, is_gpu_available,
    is_metal_available, manual_seed, nn, runtime, set_device, tensor, with_device, with_runtime,
};
pub use rustorch_tensor::{
    ComplexOperations, ElementwiseOp, GpuBatchMatrixExecutor, GpuBatchParallelOp, GpuConvolution,
    GpuConvolutionExecutor, GpuLinearAlgebra, GpuMatrixExecutor, GpuParallelOp, GpuPooling,
    GpuPoolingExecutor, GpuReduction, ReductionOp, gpu_attention, gpu_elementwise_add,
    gpu_elementwise_div, gpu_elementwise_mul, gpu_elementwise_sub, gpu_gelu, gpu_reduce, gpu_relu,
    gpu_softmax, hybrid_operation, infer_operation_type, is_device_error,
};
pub use rustorch_tensor::{fft, linalg};

#[cfg(feature = "hybrid-f32")]
pub use rustorch_tensor::{
    DeviceState, F32HybridExecutor, F32Operand, F32Report, F32Tensor, F32Transfer, F32UnifiedBuffer,
};

/// What most programs need: `use rustorch::prelude::*`.
pub mod prelude {
    pub use crate::{
        AttentionOptions, DType, DeviceType, Element, Rope, RopeLayout, RopeScaling, Routing,
        Runtime, RusTorchError, RusTorchResult, Storage, Tensor, Trace, current_device, eval_all,
        is_gpu_available, manual_seed, nn, runtime, set_device, tensor, with_device, with_runtime,
    };
}

/// The examples of the README, which are compiled and run with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The example of the guide to `f32`.
#[cfg(all(doctest, feature = "hybrid-f32"))]
#[doc = include_str!("../docs/f32.md")]
struct F32Guide;
