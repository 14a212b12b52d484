//! One file for each operation, of the operation's name, and the table of them.

mod arange;
mod concat;
mod functions;
mod gather;
mod index_select;
mod layer_norm;
mod linear;
mod lines;
mod matmul;
mod pad;
pub(crate) mod pointwise;
mod product;
mod random;
mod reduce;
mod rms_norm;
mod scatter;
mod softmax;
mod views;

use rustorch_runtime::KernelTable;

use crate::emit::Emit;

/// Every kernel. What is not here, GPUs do not do.
pub(crate) fn table() -> KernelTable<Emit> {
    let mut kernels = vec![softmax::KERNEL, matmul::KERNEL, linear::KERNEL];
    kernels.extend([
        arange::KERNEL,
        concat::KERNEL,
        gather::KERNEL,
        index_select::KERNEL,
        layer_norm::KERNEL,
        pad::KERNEL,
        random::KERNEL,
        reduce::KERNEL,
        rms_norm::KERNEL,
        scatter::KERNEL,
    ]);
    kernels.extend(pointwise::KERNELS);
    KernelTable(kernels)
}
