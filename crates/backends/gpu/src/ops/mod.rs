//! One file for each operation, of the operation's name, and the table of them.

mod arange;
mod attention;
mod blocks;
mod cast;
mod concat;
mod embedding;
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
mod quantized;
mod random;
mod reduce;
mod rms_norm;
mod rope;
mod scatter;
mod softmax;
mod update_slice;
mod views;

use rustorch_runtime::KernelTable;

use crate::emit::Emit;

/// Every kernel. What is not here, GPUs do not do.
pub(crate) fn table() -> KernelTable<Emit> {
    let mut kernels = vec![
        softmax::KERNEL,
        matmul::KERNEL,
        linear::KERNEL,
        embedding::KERNEL,
        cast::KERNEL,
        update_slice::KERNEL,
        rope::KERNEL,
        attention::KERNEL,
    ];
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
