//! Operations that prefer a GPU, under names of their own.
//!
//! Each is the method of [`Tensor`] of the same name without `gpu_`, recorded for the best GPU of
//! the [`runtime`](crate::runtime()): on large tensors the runtime chooses one by itself, these ask for it
//! whatever the size. Tensors that were moved to a device, and a thread's
//! [`set_device`](crate::set_device), go before. What the GPU cannot do, or fails at, goes down the
//! chain; without one they are the plain methods.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `ops.rs` | traits of tensors, and functions |
//! | `executors.rs` | the same bound to one device |

mod executors;
mod ops;

pub use executors::{
    GpuBatchMatrixExecutor, GpuConvolutionExecutor, GpuMatrixExecutor, GpuPoolingExecutor,
};
pub use ops::{
    ComplexOperations, ElementwiseOp, GpuBatchParallelOp, GpuConvolution, GpuLinearAlgebra,
    GpuParallelOp, GpuPooling, GpuReduction, ReductionOp, gpu_attention, gpu_elementwise_add,
    gpu_elementwise_div, gpu_elementwise_mul, gpu_elementwise_sub, gpu_gelu, gpu_reduce, gpu_relu,
    gpu_softmax,
};
