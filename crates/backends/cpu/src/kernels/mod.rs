//! One file for each operation, of the operation's name, and the table of them.

mod activation;
mod add_rms_norm;
mod arange;
mod arg_reduce;
mod assign;
mod attention;
mod binary;
mod cast;
mod cholesky;
mod compare;
mod concat;
mod contiguous;
mod conv2d;
mod conv_transpose2d;
mod cross_entropy;
mod eig;
mod eigh;
mod embedding;
mod fft;
mod flip;
mod full;
mod fused_linear;
mod gather;
mod geqrf;
mod group_norm;
mod host;
mod householder_product;
mod index_select;
mod layer_norm;
mod ldl;
mod ldl_solve;
mod linear;
mod lu;
mod lu_pivots_to_permutation;
mod matmul;
mod matrix_exp;
mod pad;
mod pool2d;
mod qr;
mod random;
mod reduce;
mod resample;
mod rms_norm;
mod rope;
mod scan;
mod scatter;
mod select;
mod softmax;
mod solve_triangular;
mod svd;
mod ternary;
mod top_k;
mod triangle;
mod unary;
mod update_slice;

use rustorch_runtime::KernelTable;

use crate::launch::Launch;

/// Every kernel. What is not here, the CPU does not do.
pub(crate) fn table() -> KernelTable<Launch> {
    KernelTable::new(vec![
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
        cholesky::KERNEL,
        compare::KERNEL,
        concat::KERNEL,
        contiguous::KERNEL,
        conv2d::KERNEL,
        conv_transpose2d::KERNEL,
        cross_entropy::KERNEL,
        eig::KERNEL,
        eigh::KERNEL,
        scan::KERNEL,
        embedding::KERNEL,
        fft::KERNEL,
        flip::KERNEL,
        full::KERNEL,
        fused_linear::KERNEL,
        gather::KERNEL,
        geqrf::KERNEL,
        group_norm::KERNEL,
        householder_product::KERNEL,
        index_select::KERNEL,
        layer_norm::KERNEL,
        linear::KERNEL,
        ldl::KERNEL,
        ldl_solve::KERNEL,
        lu::KERNEL,
        host::KERNEL,
        lu_pivots_to_permutation::KERNEL,
        matmul::KERNEL,
        matrix_exp::KERNEL,
        pad::KERNEL,
        pool2d::KERNEL,
        qr::KERNEL,
        random::KERNEL,
        reduce::KERNEL,
        resample::KERNEL,
        rms_norm::KERNEL,
        rope::KERNEL,
        scatter::KERNEL,
        select::KERNEL,
        softmax::KERNEL,
        solve_triangular::KERNEL,
        svd::KERNEL,
        ternary::KERNEL,
        top_k::KERNEL,
        triangle::KERNEL,
        unary::KERNEL,
        update_slice::KERNEL,
    ])
}
