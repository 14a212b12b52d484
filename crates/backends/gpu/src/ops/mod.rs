//! One file for each operation, of the operation's name, and the table of them.

mod functions;
mod layer_norm;
mod linear;
mod lines;
mod matmul;
pub(crate) mod pointwise;
mod product;
mod reduce;
mod rms_norm;
mod softmax;

use rustorch_runtime::KernelTable;

use crate::emit::Emit;

/// Every kernel. What is not here, GPUs do not do.
pub(crate) fn table() -> KernelTable<Emit> {
    let mut kernels = vec![softmax::KERNEL, matmul::KERNEL, linear::KERNEL];
    kernels.extend([layer_norm::KERNEL, reduce::KERNEL, rms_norm::KERNEL]);
    kernels.extend(pointwise::KERNELS);
    KernelTable(kernels)
}
