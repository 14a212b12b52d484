//! One file for each operation, of the operation's name, and the table of them.

mod arange;
mod convolution;
mod elementwise;
#[cfg(feature = "fft")]
mod fft;
mod foreach;
mod full;
mod host;
#[cfg(feature = "linalg")]
mod linalg;
mod lu_pivots_to_permutation;
mod matrix;
mod movement;
mod normalization;
mod random;
mod reduction;
mod transformer;

use convolution::*;
use elementwise::*;
use matrix::*;
use movement::*;
use normalization::*;
use reduction::*;
use transformer::*;

use rustorch_ir::OpKind;
use rustorch_runtime::{KernelEntry, KernelTable};

use crate::launch::Launch;

/// Every kernel. The CPU does not run operations that are not here, or whose feature is left out.
pub(crate) fn table() -> KernelTable<Launch> {
    let kernels = families().into_iter().flat_map(|(_, kernels)| kernels);
    KernelTable::new(kernels.collect())
}

/// The kernels by the features that they are in.
fn families() -> Vec<(Option<&'static str>, Vec<KernelEntry<Launch>>)> {
    vec![
        #[cfg(feature = "fft")]
        (Some("fft"), vec![fft::KERNEL]),
        #[cfg(feature = "linalg")]
        (Some("linalg"), Vec::from(linalg::KERNELS)),
        match cfg!(feature = "llm") {
            true => (
                Some("llm"),
                vec![
                    attention::KERNEL,
                    expert_linear::KERNEL,
                    fused_linear::KERNEL,
                    linear::KERNEL,
                ],
            ),
            false => (Some("llm"), Vec::new()),
        },
        (
            None,
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
                conv2d_weight::KERNEL,
                conv_transpose2d::KERNEL,
                cross_entropy::KERNEL,
                cross_entropy_backward::KERNEL,
                scan::KERNEL,
                embedding::KERNEL,
                flip::KERNEL,
                foreach::NUMBERS,
                foreach::UPDATES,
                full::KERNEL,
                gather::KERNEL,
                group_norm::KERNEL,
                index_select::KERNEL,
                kth_value::KERNEL,
                layer_norm::KERNEL,
                linear_recurrence::KERNEL,
                host::KERNEL,
                lu_pivots_to_permutation::KERNEL,
                matmul::KERNEL,
                norm_backward::KERNEL,
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
                var_mean::KERNEL,
                within::KERNEL,
            ],
        ),
        (None, Vec::from(lstm::KERNELS)),
    ]
}

/// The feature that an operation's kernel is in, if that is left out.
pub(crate) fn missing_feature(kind: OpKind) -> Option<&'static str> {
    let (feature, is_here) = feature(kind)?;
    (!is_here).then_some(feature)
}

/// The feature that an operation's kernel is in, if it is in one, and whether that is here.
fn feature(kind: OpKind) -> Option<(&'static str, bool)> {
    match kind {
        OpKind::Fft => Some(("fft", cfg!(feature = "fft"))),
        OpKind::Cholesky
        | OpKind::Eig
        | OpKind::Eigh
        | OpKind::Geqrf
        | OpKind::HouseholderProduct
        | OpKind::Ldl
        | OpKind::LdlSolve
        | OpKind::Lu
        | OpKind::MatrixExp
        | OpKind::Qr
        | OpKind::SolveTriangular
        | OpKind::Svd => Some(("linalg", cfg!(feature = "linalg"))),
        OpKind::Attention | OpKind::ExpertLinear | OpKind::FusedLinear | OpKind::Linear => {
            Some(("llm", cfg!(feature = "llm")))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_in_the_features_that_errors_name() {
        for (family, kernels) in families() {
            for kernel in kernels {
                let named = feature(kernel.kind).map(|(name, _)| name);
                assert_eq!(named, family, "{:?}", kernel.kind);
            }
        }
    }
}
