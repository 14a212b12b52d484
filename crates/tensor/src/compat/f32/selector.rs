//! The f32 hybrid's choice of a device for an operation.

use rustorch_ir::{DType, TensorType};
use rustorch_runtime::{DeviceType, OpType, TensorInfo};

use crate::HybridExecutor;
use crate::args::dims::IntoShape;
use crate::error::RusTorchResult;

/// The kinds of operations in the rules of the f32 hybrid.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum F32Operation {
    /// Matrix products, and operations composed of them.
    MatMul,
    /// A convolution or pooling of images.
    Conv2d,
    /// An elementwise function.
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

/// The rules of an [`F32HybridExecutor`](super::F32HybridExecutor), for operations that are not
/// recorded yet.
#[derive(Clone, Copy)]
pub struct F32DeviceSelector<'a>(pub(super) &'a HybridExecutor);

impl F32DeviceSelector<'_> {
    /// The device for an operation whose largest operand or result has this shape.
    ///
    /// # Errors
    /// Fails if no device has kernels for the operation.
    pub fn select(
        &self,
        operation: F32Operation,
        shape: impl IntoShape,
    ) -> RusTorchResult<DeviceType> {
        self.0.select_device(operation.op_type(), &info(shape))
    }

    /// The next device after a failure; `None` after the last.
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
