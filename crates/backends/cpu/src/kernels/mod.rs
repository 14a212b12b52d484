//! One file for each operation, of the operation's name, and the table of them.

mod activation;
mod add_rms_norm;
mod arange;
mod arg_reduce;
mod assign;
mod attention;
mod binary;
mod cast;
mod compare;
mod concat;
mod contiguous;
mod conv2d;
mod conv_transpose2d;
mod embedding;
mod full;
mod fused_linear;
mod gather;
mod index_select;
mod layer_norm;
mod linear;
mod matmul;
mod pad;
mod pool2d;
mod random;
mod reduce;
mod rms_norm;
mod rope;
mod scan;
mod scatter;
mod select;
mod softmax;
mod top_k;
mod unary;
mod update_slice;

use rustorch_runtime::KernelTable;

use crate::launch::Launch;

/// Every kernel. What is not here, the CPU does not do.
pub(crate) fn table() -> KernelTable<Launch> {
    KernelTable(vec![
        activation::KERNEL,
        add_rms_norm::KERNEL,
        arange::KERNEL,
        arg_reduce::KERNEL,
        assign::KERNEL,
        attention::KERNEL,
        binary::INTEGER_DIVISION,
        binary::KERNEL,
        cast::DEQUANTIZATION,
        cast::KERNEL,
        compare::KERNEL,
        concat::KERNEL,
        contiguous::KERNEL,
        conv2d::KERNEL,
        conv_transpose2d::KERNEL,
        scan::KERNEL,
        embedding::KERNEL,
        full::KERNEL,
        fused_linear::KERNEL,
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
        select::KERNEL,
        softmax::KERNEL,
        top_k::KERNEL,
        unary::KERNEL,
        update_slice::KERNEL,
    ])
}
