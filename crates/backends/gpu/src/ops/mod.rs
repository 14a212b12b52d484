//! One file for each operation, of the operation's name, and the table of them.

mod add_rms_norm;
mod arange;
mod arg_reduce;
mod assign;
pub(crate) mod attention;
mod blocks;
mod cached_attention;
mod cast;
mod concat;
pub(crate) mod conv2d;
mod conv_transpose2d;
pub(crate) mod cuda;
mod embedding;
mod fft;
mod functions;
pub(crate) mod fused_linear;
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
mod scan;
mod scatter;
mod simd_tile;
mod softmax;
mod special;
mod tile;
mod top_k;
mod update_slice;
mod views;
mod windows;

use rustorch_runtime::KernelTable;

use crate::emit::GpuKernel;

/// Every kernel. What is not here, GPUs do not do.
pub(crate) fn table() -> KernelTable<GpuKernel> {
    let mut kernels = vec![
        add_rms_norm::KERNEL,
        arange::KERNEL,
        arg_reduce::KERNEL,
        assign::KERNEL,
        cached_attention::KERNEL,
        cast::KERNEL,
        concat::KERNEL,
        conv_transpose2d::KERNEL,
        scan::KERNEL,
        embedding::KERNEL,
        fft::KERNEL,
        gather::KERNEL,
        index_select::KERNEL,
        layer_norm::KERNEL,
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
    kernels.extend(attention::KERNELS);
    kernels.extend(conv2d::KERNELS);
    kernels.extend(fused_linear::KERNELS);
    kernels.extend(linear::KERNELS);
    kernels.extend(matmul::KERNELS);
    kernels.extend(pointwise::KERNELS);
    KernelTable::new(kernels)
}
