//! One file for each operation, of the operation's name, and the table of them.

mod arange;
mod convolution;
pub(crate) mod cuda;
pub(crate) mod custom;
mod elementwise;
mod fft;
mod foreach;
mod matrix;
mod movement;
mod normalization;
pub(crate) mod random;
mod reduction;
mod transformer;
pub(crate) mod wgsl;

pub(crate) use convolution::*;
pub(crate) use elementwise::*;
use matrix::*;
use movement::*;
use normalization::*;
pub(crate) use reduction::*;
pub(crate) use transformer::*;

use rustorch_runtime::KernelTable;

use crate::dialect::Dialect;
use crate::emit::GpuKernel;

/// Every kernel in a language. GPUs do not run operations that are not here.
pub(crate) fn table(dialect: Dialect) -> KernelTable<GpuKernel> {
    match dialect {
        Dialect::Wgsl => wgsl::table(),
        _ => portable(),
    }
}

/// Kernels in the portable dialect, and in CUDA and Metal.
fn portable() -> KernelTable<GpuKernel> {
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
