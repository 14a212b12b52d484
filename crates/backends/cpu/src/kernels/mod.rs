//! One file for each operation, of the operation's name, and the table of them.

mod attention;
mod embedding;
mod linear;
mod rms_norm;
mod rope;
mod update_slice;

use rustorch_runtime::KernelTable;

use crate::kernel::Launch;

/// Every kernel. What is not here, the CPU does not do.
pub(crate) fn table() -> KernelTable<Launch> {
    KernelTable(vec![
        attention::KERNEL,
        embedding::KERNEL,
        linear::KERNEL,
        rms_norm::KERNEL,
        rope::KERNEL,
        update_slice::KERNEL,
    ])
}
