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
mod cross_entropy;
mod embedding;
#[cfg(feature = "fft")]
mod fft;
mod flip;
mod full;
mod fused_linear;
mod gather;
mod group_norm;
mod host;
mod index_select;
mod layer_norm;
#[cfg(feature = "linalg")]
mod linalg;
mod linear;
mod lu_pivots_to_permutation;
mod matmul;
mod pad;
mod pool2d;
mod random;
mod reduce;
mod resample;
mod rms_norm;
mod rope;
mod scan;
mod scatter;
mod select;
mod softmax;
mod ternary;
mod top_k;
mod triangle;
mod unary;
mod update_slice;

use rustorch_runtime::KernelTable;

use crate::launch::Launch;

/// Every kernel. What is not here, or in a feature that is left out, the CPU does not do.
pub(crate) fn table() -> KernelTable<Launch> {
    let families = [
        #[cfg(feature = "fft")]
        vec![fft::KERNEL],
        #[cfg(feature = "linalg")]
        Vec::from(linalg::KERNELS),
        match cfg!(feature = "llm") {
            true => vec![attention::KERNEL, fused_linear::KERNEL, linear::KERNEL],
            false => Vec::new(),
        },
        vec![
            activation::KERNEL,
            add_rms_norm::KERNEL,
            arange::KERNEL,
            arg_reduce::KERNEL,
            assign::KERNEL,
            binary::INTEGER_DIVISION,
            binary::KERNEL,
            cast::DEQUANTIZATION,
            cast::KERNEL,
            compare::KERNEL,
            concat::KERNEL,
            contiguous::KERNEL,
            conv2d::KERNEL,
            conv_transpose2d::KERNEL,
            cross_entropy::KERNEL,
            scan::KERNEL,
            embedding::KERNEL,
            flip::KERNEL,
            full::KERNEL,
            gather::KERNEL,
            group_norm::KERNEL,
            index_select::KERNEL,
            layer_norm::KERNEL,
            host::KERNEL,
            lu_pivots_to_permutation::KERNEL,
            matmul::KERNEL,
            pad::KERNEL,
            pool2d::KERNEL,
            random::KERNEL,
            reduce::KERNEL,
            resample::KERNEL,
            rms_norm::KERNEL,
            rope::KERNEL,
            scatter::KERNEL,
            select::KERNEL,
            softmax::KERNEL,
            ternary::KERNEL,
            top_k::KERNEL,
            triangle::KERNEL,
            unary::KERNEL,
            update_slice::KERNEL,
        ],
    ];
    KernelTable::new(families.into_iter().flatten().collect())
}
