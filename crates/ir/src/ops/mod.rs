//! One file for each operation: parameters, inference, decomposition, conformance cases.

pub(crate) mod arange;
mod convolution;
pub(crate) mod custom;
mod custom_kernel;
mod elementwise;
pub(crate) mod fft;
pub(crate) mod foreach;
pub(crate) mod foreach_reduce;
pub(crate) mod full;
pub(crate) mod groups;
pub(crate) mod host;
mod linalg;
mod matrix;
mod movement;
mod normalization;
pub(crate) mod random;
mod reduction;
mod transformer;

pub(crate) use convolution::*;
pub(crate) use elementwise::*;
pub(crate) use linalg::*;
pub(crate) use matrix::*;
pub(crate) use movement::*;
pub(crate) use normalization::*;
pub(crate) use reduction::*;
pub(crate) use transformer::*;

pub use activation::{Activation, ActivationKind};
pub use add_rms_norm::AddRmsNorm;
pub use adjugate::Adjugate;
pub use arange::Arange;
pub use arg_reduce::ArgReduce;
pub use as_strided::AsStrided;
pub use assign::Assign;
pub use attention::Attention;
pub use attention_backward::AttentionBackward;
pub use batch_norm::BatchNorm;
pub use batch_norm_backward::BatchNormBackward;
pub use batch_norm_train::BatchNormTrain;
pub use binary::{Binary, BinaryOp};
pub use cached_attention::CachedAttention;
pub use cast::Cast;
pub use channels_last::ChannelsLast;
pub use cholesky::Cholesky;
pub use compare::{Compare, CompareOp};
pub use concat::Concat;
pub use contiguous::Contiguous;
pub use conv_transpose2d::ConvTranspose2d;
pub use conv2d::Conv2d;
pub use conv2d_weight::Conv2dWeight;
pub use cross_entropy::CrossEntropy;
pub use cross_entropy_backward::CrossEntropyBackward;
pub use cross_entropy_mean::CrossEntropyMean;
pub use custom::{Composite, Custom, Parameters};
pub use custom_kernel::{CustomKernel, KernelLanguage};
pub use determinant::Determinant;
pub use eig::Eig;
pub use eigh::Eigh;
pub use embedding::Embedding;
pub use expand::Expand;
pub use expert_linear::ExpertLinear;
pub use fft::{Fft, FftKind};
pub use flip::Flip;
pub use foreach::Foreach;
pub use foreach_reduce::ForeachReduce;
pub use full::Full;
pub use fused_expert_linear::{ExpertEpilogue, FusedExpertLinear};
pub use fused_linear::{Epilogue, FusedLinear, Prologue};
pub use fused_norm::FusedNorm;
pub use gather::Gather;
pub use geqrf::Geqrf;
pub use group_norm::GroupNorm;
pub use host::{Host, HostArray, HostArrayMut, HostFunction};
pub use householder_product::HouseholderProduct;
pub use index_select::IndexSelect;
pub use kth_value::KthValue;
pub use layer_norm::LayerNorm;
pub use ldl::Ldl;
pub use ldl_solve::LdlSolve;
pub use linear::Linear;
pub use log_determinant::LogDeterminant;
pub use lstm::Lstm;
pub use lstm_backward::LstmBackward;
pub use lu::Lu;
pub use lu_pivots_to_permutation::LuPivotsToPermutation;
pub use matmul::Matmul;
pub use matrix_exp::MatrixExp;
pub use max_pool2d_backward::MaxPool2dBackward;
pub use norm_backward::NormBackward;
pub use offload::Offload;
pub use pad::Pad;
pub use permute::Permute;
pub use pool2d::{Pool2d, PoolIndices, PoolKind};
pub use pseudo_inverse::PseudoInverse;
pub use qr::Qr;
pub use random::{Distribution, Random, philox};
pub use reduce::{Reduce, ReduceOp};
pub use reload::Reload;
pub use resample::Resample;
pub use reshape::Reshape;
pub use rms_norm::RmsNorm;
pub use rope::{Rope, RopeLayout, RopeScaling};
pub use scan::{Scan, ScanOp};
pub use scatter::{Scatter, ScatterMode};
pub use select::Where;
pub use slice::Slice;
pub use softmax::Softmax;
pub use solve_triangular::SolveTriangular;
pub use svd::{Svd, SvdVectors};
pub use ternary::{Ternary, TernaryOp};
pub use top_k::TopK;
pub use top_k_softmax::TopKSoftmax;
pub use triangle::Triangle;
pub use unary::{Unary, UnaryOp};
pub use update_slice::UpdateSlice;
pub use var_mean::VarMean;
pub use within::Within;

use crate::passes::Rule;
use crate::{DType, OpError, TensorType};

/// The rules of all composites that have one, in the order in which they are tried.
pub const RULES: &[Rule] = &[
    cached_attention::cached_attention,
    fused_linear::fused_linear,
    fused_expert_linear::fused_expert_linear,
    top_k_softmax::top_k_softmax,
    fused_norm::fused_norm,
    add_rms_norm::add_rms_norm,
    concat::sum_of_parts,
    norm_backward::norm_backward,
    cross_entropy_backward::cross_entropy_backward,
    batch_norm_train::batch_norm_train,
    batch_norm_backward::batch_norm_backward,
    groups::foreach,
    foreach_reduce::foreach_reduce,
    groups::foreach_cast,
];

/// The operands as an array, or an error that says how many there should be.
pub(crate) fn operands<'a, const N: usize>(
    op: &'static str,
    inputs: &[&'a TensorType],
) -> Result<[&'a TensorType; N], OpError> {
    inputs
        .try_into()
        .map_err(|_| OpError::new(op, format!("{N} operands"), inputs.len()))
}

/// Fails unless `condition`.
pub(crate) fn require(
    op: &'static str,
    condition: bool,
    expected: impl ToString,
    got: impl ToString,
) -> Result<(), OpError> {
    if condition {
        Ok(())
    } else {
        Err(OpError::new(op, expected, got))
    }
}

/// Fails unless `dim` is a dimension of `x`.
pub(crate) fn require_dim(op: &'static str, x: &TensorType, dim: usize) -> Result<(), OpError> {
    require(
        op,
        dim < x.rank(),
        format_args!("a dimension of {x}"),
        format_args!("dim {dim}"),
    )
}

/// Fails unless these are dimensions of `x`, each at most once, in rising order.
pub(crate) fn require_dims(
    op: &'static str,
    x: &TensorType,
    dims: &[usize],
) -> Result<(), OpError> {
    let rising = dims.is_sorted_by(|a, b| a < b) && dims.last().is_none_or(|&d| d < x.rank());
    let expected = format_args!("dimensions of {x}, each at most once, in order");
    require(op, rising, expected, format_args!("{dims:?}"))
}

/// Fails unless both have the same dtype.
pub(crate) fn require_same(
    op: &'static str,
    a: &TensorType,
    b: &TensorType,
) -> Result<(), OpError> {
    require(
        op,
        a.dtype == b.dtype,
        "operands of one dtype",
        format_args!("{a} and {b}"),
    )
}

/// Fails unless the dtype is a real floating-point one.
pub(crate) fn require_float(op: &'static str, x: &TensorType) -> Result<(), OpError> {
    require(op, x.dtype.is_float(), "a floating-point tensor", x)
}

/// Fails unless the elements can be addressed one by one.
pub(crate) fn require_scalar(op: &'static str, x: &TensorType) -> Result<(), OpError> {
    require(
        op,
        !x.dtype.is_block(),
        "a tensor of scalars (cast block formats first)",
        x,
    )
}

/// Fails unless the dtype can be an index.
pub(crate) fn require_index(op: &'static str, x: &TensorType) -> Result<(), OpError> {
    require(
        op,
        matches!(x.dtype, DType::I64 | DType::I32),
        "an index tensor of i64 or i32",
        x,
    )
}

/// The dtype that composites compute in: at least single precision.
pub(crate) fn compute_dtype(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::BF16 => DType::F32,
        other => other,
    }
}
