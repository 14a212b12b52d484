//! Lazy tensors with PyTorch's names.
//!
//! A [`Tensor`]'s methods record operations, and check shapes and dtypes. Values are computed
//! on demand, by the current [`runtime`]. [`Trace`] records a
//! computation once and runs it often.
//!
//! | file or folder | contents |
//! | --- | --- |
//! | `tensor.rs`, `call.rs` | the handle, recording, shape and dtype; the method and line of the user's call |
//! | `lazy/` | pending operations and values, graphs of them, computing, replaying, recipes for values of lost devices |
//! | `autograd/` | gradients |
//! | `api/` | methods and functions on tensors: creating, printing, updates, custom operations, checkpoints |
//! | `api/math/` | functions of elements, elements combined, linear algebra, Fourier transforms |
//! | `api/shape/` | other shapes, parts, elements chosen by index, the same elements elsewhere |
//! | `api/nn/`, `api/vision.rs` | `torch.nn.functional`, `torchvision.ops` |
//! | `api/random/` | generators and distributions |
//! | `args/` | types of arguments |
//! | `device/` | the devices, the current one, what Cargo features ask for |
//! | `distributed/` | collectives of ranks |
//! | `compat/` | hybrids, operations that prefer a GPU, tensors of the f32 hybrid, candle's names |
//! | `precision.rs`, `thread_state.rs` | the dtype of products; state of a thread that is another one during a call |
//! | `error.rs`, `warnings.rs` | errors and warnings |

mod api;
mod args;
pub mod autograd;
#[doc(hidden)]
pub mod call;
mod compat;
mod device;
pub mod distributed;
mod error;
mod lazy;
mod precision;
mod tensor;
mod thread_state;
#[doc(hidden)]
pub mod warnings;

pub use api::checkpoint::{checkpoint, checkpoint_budget};
pub use api::custom::KernelCheck;
pub use api::fetch::FetchedItem;
pub use api::macros::{Literal, Regular, Row, farthest, literal};
pub use api::math::elementwise::RoundingMode;
pub use api::math::histogram::Bins;
pub use api::math::reduce::Interpolation;
pub use api::math::scatter_reduce::ScatterReduce;
pub use api::math::segments::Segments;
pub use api::math::statistics::Spacing;
pub use api::math::unique::Unique;
pub use api::math::{fft, linalg};
pub use api::nn::AttentionOptions;
#[cfg(feature = "profile")]
pub use api::profiler;
pub use api::promote::{AsLimit, AsOperand, AsValue, Limit, Number, Operand, To};
pub use api::random::{
    Generator, GeneratorState, default_generator, fork_rng, initial_seed, manual_seed,
};
pub use api::shape::index::{Ellipsis, Index, Indices, NewAxis};
pub use api::shape::join::Indexing;
pub use api::shape::padding::PadMode;
pub use api::shape::parts::Sections;
pub use api::shape::patches::Patches;
pub use api::shape::rearrange::Repeats;
pub use api::shape::rows::Rows;
pub use api::shape::{masked, windows};
pub use api::{amp, nn, replay, vision};
pub use args::dims::{
    Dims, Integer, IntoDims, IntoParts, IntoShape, IntoSizes, OptionalDim, Parts, Size, Sizes,
};
pub use args::element::Element;
pub use args::setting::{Converted, Setting};
pub use args::windowed::{OutputSize, PerDim};
pub use autograd::{GradOptions, Recorded, enable_grad, is_grad_enabled, no_grad};
#[cfg(feature = "hybrid-f32")]
pub use compat::f32::{
    DeviceState, F32DeviceSelector, F32HybridExecutor, F32MemoryPool, F32Operand, F32Operation,
    F32Report, F32SyncManager, F32Tensor, F32Transfer, F32UnifiedBuffer,
};
pub use compat::gpu::{
    ComplexOperations, ElementwiseOp, GpuBatchMatrixExecutor, GpuBatchParallelOp, GpuConvolution,
    GpuConvolutionExecutor, GpuLinearAlgebra, GpuMatrixExecutor, GpuParallelOp, GpuPooling,
    GpuPoolingExecutor, GpuReduction, ReductionOp, gpu_attention, gpu_elementwise_add,
    gpu_elementwise_div, gpu_elementwise_mul, gpu_elementwise_sub, gpu_gelu, gpu_reduce, gpu_relu,
    gpu_softmax,
};
pub use compat::hybrid::{HybridExecutor, hybrid_operation, infer_operation_type, is_device_error};
pub use device::activity::Activity;
pub use device::devices::{
    DeviceOptions, Discovered, backends, discover, host, runtime, with_runtime,
};
pub use device::manager::{
    DeviceManager, GpuContext, IntoDevice, current_device, is_coreml_available, is_gpu_available,
    is_metal_available, set_device, with_device,
};
pub use device::preferences::prefer;
pub use error::{RusTorchError, RusTorchResult};
/// Half-precision floats as tensor elements.
pub use half;
pub use lazy::eval::eval_all;
pub use lazy::trace::Trace;
/// Complex numbers as tensor elements.
pub use num_complex;
pub use rustorch_ir::passes::Saving;
pub use rustorch_ir::{F8E4M3, F8E5M2};
pub use tensor::Tensor;
