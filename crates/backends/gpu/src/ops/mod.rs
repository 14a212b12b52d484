//! One file for each operation, of the operation's name, and the table of them.

mod arange;
mod arg_reduce;
pub(crate) mod attention;
mod blocks;
mod cast;
mod concat;
mod conv2d;
mod conv_transpose2d;
pub(crate) mod cuda;
mod cumsum;
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
mod pool2d;
mod product;
mod quantized;
mod random;
mod reduce;
mod rms_norm;
pub(crate) mod rope;
mod scatter;
mod simd_tile;
mod softmax;
mod tile;
mod top_k;
mod update_slice;
mod views;
mod windows;

use rustorch_runtime::KernelTable;

use crate::emit::Emit;

/// Every kernel. What is not here, GPUs do not do.
pub(crate) fn table() -> KernelTable<Emit> {
    let mut kernels = vec![
        arange::KERNEL,
        arg_reduce::KERNEL,
        attention::KERNEL,
        cast::KERNEL,
        concat::KERNEL,
        conv2d::KERNEL,
        conv_transpose2d::KERNEL,
        cumsum::KERNEL,
        embedding::KERNEL,
        gather::KERNEL,
        index_select::KERNEL,
        layer_norm::KERNEL,
        linear::KERNEL,
        matmul::KERNEL,
        pad::KERNEL,
        pool2d::KERNEL,
        random::KERNEL,
        reduce::KERNEL,
        rms_norm::KERNEL,
        rope::KERNEL,
        scatter::KERNEL,
        softmax::KERNEL,
        top_k::KERNEL,
        update_slice::KERNEL,
    ];
    kernels.extend(pointwise::KERNELS);
    KernelTable(kernels)
}
