//! One file for each operation, of the operation's name, and the table of them.

mod functions;
pub(crate) mod pointwise;
mod softmax;

use rustorch_runtime::KernelTable;

use crate::emit::Emit;

/// Every kernel. What is not here, GPUs do not do.
pub(crate) fn table() -> KernelTable<Emit> {
    let mut kernels = vec![softmax::KERNEL];
    kernels.extend(pointwise::KERNELS);
    KernelTable(kernels)
}
