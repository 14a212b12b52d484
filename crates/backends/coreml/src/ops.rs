//! One file for each operation, of the operation's name, and the table of them.

mod activation;
mod attention;
mod batch_norm;
mod binary;
mod cast;
mod compare;
mod concat;
mod contiguous;
mod conv2d;
mod conv_transpose2d;
mod embedding;
mod expand;
mod full;
mod gather;
mod index_select;
mod layer_norm;
mod linear;
mod matmul;
mod pad;
mod permute;
mod pool2d;
mod reduce;
mod reshape;
mod rms_norm;
mod rope;
mod select;
mod slice;
mod softmax;
mod unary;
mod update_slice;

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
