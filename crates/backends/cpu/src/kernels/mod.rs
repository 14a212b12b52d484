//! One file for each operation, of the operation's name, and the table of them.

mod activation;
mod attention;
mod binary;
mod cast;
mod contiguous;
mod embedding;
mod index_select;
mod linear;
mod rms_norm;
mod rope;
mod softmax;
mod unary;
mod update_slice;

use rustorch_runtime::KernelTable;

use crate::kernel::Launch;

/// Every kernel. What is not here, the CPU does not do.
pub(crate) fn table() -> KernelTable<Launch> {
    KernelTable(vec![
        activation::KERNEL,
        attention::KERNEL,
        binary::KERNEL,
        cast::KERNEL,
        contiguous::KERNEL,
        embedding::KERNEL,
        index_select::KERNEL,
        linear::KERNEL,
        rms_norm::KERNEL,
        rope::KERNEL,
        softmax::KERNEL,
        unary::KERNEL,
        update_slice::KERNEL,
    ])
}
