//! One file for each operation, of the operation's name, and the table of them.

mod activation;
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
mod select;
mod slice;
mod softmax;
mod unary;

use rustorch_runtime::KernelTable;

use crate::kernel::Kernel;

/// Every operation that becomes part of a program. What is not here goes elsewhere.
pub(crate) fn table() -> KernelTable<Kernel> {
    let kernels = [
        activation::KERNEL,
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
        select::KERNEL,
        slice::KERNEL,
        softmax::KERNEL,
        unary::KERNEL,
    ];
    KernelTable::new(kernels.into_iter().map(Kernel::entry).collect())
}
