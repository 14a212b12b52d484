//! Operations that prefer a GPU, with their own names.
//!
//! Each is the method of [`Tensor`] of the same name without `gpu_`, recorded for the best GPU of
//! the [`runtime`](crate::runtime()). The runtime itself chooses a GPU only for large tensors;
//! these functions ask for it at any size. Tensors that were moved to a device, and a thread's
//! [`set_device`](crate::set_device), take precedence. If the GPU cannot run an operation, or fails
//! at it, the next device does. Without a GPU they are the plain methods.
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
