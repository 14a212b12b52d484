//! One file for each operation, of the operation's name, and the table of them.

mod add_rms_norm;
mod arange;
mod arg_reduce;
mod assign;
pub(crate) mod attention;
mod attention_backward;
mod batch_norm;
mod batch_norm_train;
mod blocks;
mod cached_attention;
mod cast;
mod channels_last;
mod concat;
pub(crate) mod conv2d;
mod conv2d_weight;
mod conv_transpose2d;
mod cross_entropy;
pub(crate) mod cuda;
pub(crate) mod custom;
mod embedding;
pub(crate) mod expert_linear;
mod fft;
mod flip;
mod foreach;
mod functions;
pub(crate) mod fused_linear;
mod fused_norm;
mod gather;
mod group_norm;
mod index_select;
mod layer_norm;
mod linear;
mod lines;
mod matmul;
mod max_pool2d_backward;
mod norm_backward;
mod pad;
pub(crate) mod pointwise;
mod pool2d;
mod product;
mod quantized;
pub(crate) mod random;
pub(crate) mod reduce;
mod resample;
mod rms_norm;
pub(crate) mod rope;
mod scan;
mod scatter;
mod simd_tile;
mod softmax;
mod special;
mod tile;
mod top_k;
mod triangle;
mod update_slice;
mod var_mean;
mod views;
mod windows;
mod within;

use rustorch_runtime::KernelTable;

use crate::emit::GpuKernel;

/// Every kernel. GPUs do not run operations that are not here.
pub(crate) fn table() -> KernelTable<GpuKernel> {
    let mut kernels = vec![
        add_rms_norm::KERNEL,
        arange::KERNEL,
        arg_reduce::KERNEL,
        assign::KERNEL,
        batch_norm::KERNEL,
        attention_backward::KERNEL,
        cached_attention::KERNEL,
        cast::KERNEL,
        concat::KERNEL,
        conv2d_weight::KERNEL,
        scan::KERNEL,
        custom::KERNEL,
        embedding::KERNEL,
        fft::KERNEL,
        flip::KERNEL,
        fused_norm::KERNEL,
        gather::KERNEL,
        group_norm::KERNEL,
        index_select::KERNEL,
        layer_norm::KERNEL,
        max_pool2d_backward::KERNEL,
        norm_backward::KERNEL,
        pad::KERNEL,
        pool2d::KERNEL,
        random::KERNEL,
        reduce::KERNEL,
        resample::KERNEL,
        rms_norm::KERNEL,
        rope::KERNEL,
        scatter::KERNEL,
        softmax::KERNEL,
        triangle::KERNEL,
        within::KERNEL,
        update_slice::KERNEL,
        var_mean::KERNEL,
    ];
    kernels.extend(attention::KERNELS);
    kernels.extend(batch_norm_train::KERNELS);
    kernels.extend(channels_last::KERNELS);
    kernels.extend(conv2d::KERNELS);
    kernels.extend(conv_transpose2d::KERNELS);
    kernels.extend(expert_linear::KERNELS);
    kernels.extend(foreach::KERNELS);
    kernels.extend(cross_entropy::KERNELS);
    kernels.extend(fused_linear::KERNELS);
    kernels.extend(linear::KERNELS);
    kernels.extend(matmul::KERNELS);
    kernels.extend(pointwise::KERNELS);
    kernels.extend(top_k::KERNELS);
    KernelTable::new(kernels)
}
