//! Which device the f32 hybrid gives an operation.

use rustorch_ir::{DType, TensorType};
use rustorch_runtime::{DeviceType, OpType, TensorInfo};

use crate::HybridExecutor;
use crate::dims::IntoShape;
use crate::error::RusTorchResult;

/// What the rules of the f32 hybrid tell apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum F32Operation {
    /// A product of matrices, and what is made of them.
    MatMul,
    /// A convolution or pooling of images.
    Conv2d,
    /// A function of elements.
    Activation,
    /// A reduction, scan or selection.
    Reduction,
    /// Softmax or a norm.
    Normalization,
}

impl F32Operation {
    /// Its family.
    pub fn op_type(self) -> OpType {
        match self {
            Self::MatMul => OpType::LinearAlgebra,
            Self::Conv2d => OpType::Convolution,
            Self::Activation => OpType::Activation,
            Self::Reduction => OpType::Reduction,
            Self::Normalization => OpType::Normalization,
        }
    }
}

/// The rules of an [`F32HybridExecutor`](super::F32HybridExecutor), asked about operations that are
/// not there yet.
#[derive(Clone, Copy)]
pub struct F32DeviceSelector<'a>(pub(super) &'a HybridExecutor);

impl F32DeviceSelector<'_> {
    /// The device for an operation whose largest operand or result has this shape.
    ///
    /// # Errors
    /// No device has kernels for it.
    pub fn select(
        &self,
        operation: F32Operation,
        shape: impl IntoShape,
    ) -> RusTorchResult<DeviceType> {
        self.0.select_device(operation.op_type(), &info(shape))
    }

    /// Where it goes on when it fails on a device; `None` behind the last.
    pub fn next(
        &self,
        operation: F32Operation,
        shape: impl IntoShape,
        failed: DeviceType,
    ) -> Option<DeviceType> {
        let tensor = info(shape);
        self.0
            .next_fallback_device(operation.op_type(), &tensor, failed)
    }
}

fn info(shape: impl IntoShape) -> TensorInfo {
    TensorInfo::new(TensorType::new(shape.into_shape(), DType::F32))
}
