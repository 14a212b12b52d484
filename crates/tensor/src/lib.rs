//! Lazy tensors with PyTorch's names.
//!
//! A [`Tensor`]'s methods record operations, and check shapes and dtypes. Values are computed
//! on demand, by the current [`runtime`]. [`Trace`] records a
//! computation once and runs it often.
//!
//! | file | contents |
//! | --- | --- |
//! | `tensor.rs`, `value.rs`, `spares.rs` | the handle, recording, shape and dtype; the value behind it; memory for reuse |
//! | `call.rs` | the method and line of the user's call |
//! | `history.rs`, `autograd/` | pending operations; gradients |
//! | `checkpoint.rs`, `recompute.rs`, `chunks.rs` | gradients with less memory: checkpoints, recomputation, offloading, logits in chunks |
//! | `precision.rs`, `amp.rs`, `repeats.rs` | automatic mixed precision, with conversions made once |
//! | `recipe.rs`, `recovery.rs` | recipes for values of lost devices |
//! | `leaves.rs`, `capture.rs`, `eval.rs`, `trace.rs`, `rewriting.rs` | graphs of tensors, computing, replaying, rewriting |
//! | `recording.rs`, `replay.rs` | data that changes in each run: numbers, random keys |
//! | `explain.rs` | the device of each operation, and why |
//! | `creation.rs`, `random/`, `macros.rs` | new tensors |
//! | `layouts.rs` | tensors of given strides, and of other sizes |
//! | `views.rs`, `parts.rs`, `diagonals.rs` | other shapes, parts along dimensions, diagonals |
//! | `index.rs`, `index/` | elements chosen or placed by index |
//! | `rearrange.rs`, `join.rs`, `padding.rs` | the same elements elsewhere, put together, continued |
//! | `search.rs`, `unique.rs`, `histogram.rs` | places in sorted sequences, equal elements, counts |
//! | `statistics.rs`, `patches.rs`, `windows.rs` | covariance and slopes, patches of images, windows |
//! | `promote.rs`, `elementwise/`, `ops_traits.rs` | functions of elements, operators |
//! | `updates.rs`, `in_place.rs` | memory written over; functions that do so with their results |
//! | `reduce/`, `scatter_reduce.rs`, `segments.rs` | elements combined |
//! | `linalg/`, `fft.rs` | linear algebra, Fourier transforms |
//! | `nn/` | `torch.nn.functional` |
//! | `masked.rs` | `torch.masked` |
//! | `vision.rs` | `torchvision.ops` |
//! | `display.rs` | printing |
//! | `rows.rs` | tensors taken apart: rows, nested vectors |
//! | `names.rs` | candle's names of methods |
//! | `devices.rs`, `manager.rs`, `hybrid.rs` | the devices, the current one, choosing one |
//! | `gpu/` | operations that prefer a GPU |
//! | `distributed/` | collectives of ranks |
//! | `custom.rs` | operations, kernels and functions of others |
//! | `profiler.rs` | what runs when, and for how long (feature `profile`) |
//! | `preferences.rs` | what Cargo features ask for |
//! | `activity.rs`, `converting.rs` | conversions and copies: counted, and made to compare with |
//! | `f32/` | tensors and devices of the f32 hybrid (feature `hybrid-f32`) |
//! | `dims.rs`, `windowed.rs`, `setting.rs`, `element.rs`, `error.rs` | types of arguments and errors |

mod activity;
pub mod amp;
pub mod autograd;
#[doc(hidden)]
pub mod call;
mod capture;
mod checkpoint;
mod chunks;
mod converting;
mod creation;
mod custom;
mod devices;
mod diagonals;
mod dims;
mod display;
pub mod distributed;
mod eager;
mod element;
mod elementwise;
mod error;
mod eval;
mod explain;
#[cfg(feature = "hybrid-f32")]
mod f32;
mod fetch;
pub mod fft;
mod gpu;
mod hints;
mod histogram;
mod history;
mod hybrid;
mod in_place;
mod index;
mod join;
mod known;
mod layouts;
mod leaves;
pub mod linalg;
mod macros;
mod manager;
pub mod masked;
mod names;
pub mod nn;
mod numbers;
mod ops_traits;
mod padding;
mod parts;
mod patches;
mod precision;
mod preferences;
#[cfg(feature = "profile")]
pub mod profiler;
mod promote;
mod random;
mod ranges;
mod rearrange;
mod recipe;
mod recompute;
mod recording;
mod recovery;
mod reduce;
mod repeats;
pub mod replay;
mod rewriting;
mod rows;
mod scatter_reduce;
mod search;
mod segments;
mod setting;
mod spares;
mod statistics;
mod tensor;
mod trace;
mod tree;
mod unique;
mod updates;
mod value;
mod views;
pub mod vision;
mod warnings;
mod windowed;
pub mod windows;

pub use activity::Activity;
pub use autograd::{GradOptions, Recorded, enable_grad, is_grad_enabled, no_grad};
pub use checkpoint::{checkpoint, checkpoint_budget};
pub use custom::KernelCheck;
pub use devices::{DeviceOptions, Discovered, backends, discover, host, runtime, with_runtime};
pub use dims::{Dims, Integer, IntoDims, IntoShape, IntoSizes, OptionalDim, Size, Sizes};
pub use element::Element;
pub use elementwise::RoundingMode;
pub use error::{RusTorchError, RusTorchResult};
pub use eval::eval_all;
#[cfg(feature = "hybrid-f32")]
pub use f32::{
    DeviceState, F32DeviceSelector, F32HybridExecutor, F32MemoryPool, F32Operand, F32Operation,
    F32Report, F32SyncManager, F32Tensor, F32Transfer, F32UnifiedBuffer,
};
pub use fetch::FetchedItem;
pub use gpu::{
    ComplexOperations, ElementwiseOp, GpuBatchMatrixExecutor, GpuBatchParallelOp, GpuConvolution,
    GpuConvolutionExecutor, GpuLinearAlgebra, GpuMatrixExecutor, GpuParallelOp, GpuPooling,
    GpuPoolingExecutor, GpuReduction, ReductionOp, gpu_attention, gpu_elementwise_add,
    gpu_elementwise_div, gpu_elementwise_mul, gpu_elementwise_sub, gpu_gelu, gpu_reduce, gpu_relu,
    gpu_softmax,
};
/// Half-precision floats as tensor elements.
pub use half;
pub use histogram::Bins;
pub use hybrid::{HybridExecutor, hybrid_operation, infer_operation_type, is_device_error};
pub use index::{Ellipsis, Index, Indices, NewAxis};
pub use join::Indexing;
pub use macros::{Literal, Regular, Row, farthest, literal};
pub use manager::{
    DeviceManager, GpuContext, IntoDevice, current_device, is_coreml_available, is_gpu_available,
    is_metal_available, set_device, with_device,
};
pub use nn::AttentionOptions;
/// Complex numbers as tensor elements.
pub use num_complex;
pub use padding::PadMode;
pub use parts::Sections;
pub use patches::Patches;
pub use preferences::prefer;
pub use promote::{AsOperand, Number, Operand, To};
pub use random::{
    Generator, GeneratorState, default_generator, fork_rng, initial_seed, manual_seed,
};
pub use rearrange::Repeats;
pub use recompute::Saving;
pub use reduce::Interpolation;
pub use rows::Rows;
pub use rustorch_ir::{F8E4M3, F8E5M2};
pub use scatter_reduce::ScatterReduce;
pub use segments::Segments;
pub use setting::{Converted, Setting};
pub use statistics::Spacing;
pub use tensor::Tensor;
pub use trace::Trace;
pub use unique::Unique;
pub use windowed::{OutputSize, PerDim};
