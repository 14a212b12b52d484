//! One file for each operation, of the operation's name, and the table of them.

mod convolution;
mod elementwise;
mod full;
mod matrix;
mod movement;
mod normalization;
mod reduction;
mod transformer;

use convolution::*;
use elementwise::*;
use matrix::*;
use movement::*;
use normalization::*;
use reduction::*;
use transformer::*;

use rustorch_runtime::KernelTable;

use crate::kernel::Kernel;

/// Every operation that becomes part of a program. Other operations go to other devices.
pub(crate) fn table() -> KernelTable<Kernel> {
    let kernels = [
        activation::KERNEL,
        attention::KERNEL,
        batch_norm::KERNEL,
        binary::KERNEL,
        cast::KERNEL,
        compare::KERNEL,
        concat::KERNEL,
        contiguous::KERNEL,
        conv2d::KERNEL,
        conv_transpose2d::KERNEL,
        embedding::KERNEL,
        expand::KERNEL,
        full::KERNEL,
        gather::KERNEL,
        index_select::KERNEL,
        layer_norm::KERNEL,
        linear::KERNEL,
        matmul::KERNEL,
        pad::KERNEL,
        permute::KERNEL,
        pool2d::KERNEL,
        reduce::KERNEL,
        reshape::KERNEL,
        rms_norm::KERNEL,
        rope::KERNEL,
        select::KERNEL,
        slice::KERNEL,
        softmax::KERNEL,
        unary::KERNEL,
        update_slice::KERNEL,
    ];
    KernelTable::new(kernels.into_iter().map(Kernel::entry).collect())
}
