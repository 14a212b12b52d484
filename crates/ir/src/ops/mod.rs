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

pub use convolution::*;
pub use elementwise::*;
pub use linalg::*;
pub use matrix::*;
pub use movement::*;
pub use normalization::*;
pub use reduction::*;
pub use transformer::*;

pub use arange::Arange;
pub use custom::{Composite, Custom, Parameters};
pub use custom_kernel::{CustomKernel, KernelLanguage};
pub use fft::{Fft, FftKind};
pub use foreach::Foreach;
pub use foreach_reduce::ForeachReduce;
pub use full::Full;
pub use host::{Host, HostArray, HostArrayMut, HostFunction};
pub use random::{Distribution, Random, philox};

use crate::{DType, OpError, TensorType};

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
