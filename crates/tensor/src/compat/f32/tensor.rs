//! Tensors whose type says that they are `f32`.

use std::fmt;

use rustorch_ir::{DType, OpError};
use rustorch_macros::track_calls;
use rustorch_runtime::DeviceType;

use super::DeviceState;
use crate::Tensor;
use crate::args::dims::IntoShape;
use crate::error::{RusTorchError, RusTorchResult};

/// A [`Tensor`] that the compiler knows to be `f32`.
///
/// Its methods compute the same as those of [`Tensor`]; none converts. A tensor of another dtype
/// becomes one only explicitly:
///
/// ```
/// use rustorch_ir::DType;
/// use rustorch_tensor::{F32Tensor, Tensor};
///
/// # fn main() -> rustorch_tensor::RusTorchResult<()> {
/// let double = Tensor::from_slice(&[0.5f64, 0.25], [2])?;
/// assert!(F32Tensor::try_from(double.clone()).is_err());
/// let single = F32Tensor::try_from(double.to_dtype(DType::F32)?)?;
/// assert_eq!((&single * 2.0)?.to_vec()?, [1.0, 0.5]);
/// # Ok(())
/// # }
/// ```
///
/// Clones are handles on the same value.
#[derive(Clone)]
pub struct F32Tensor(Tensor);

impl TryFrom<Tensor> for F32Tensor {
    type Error = RusTorchError;

    /// The same tensor, if its elements are `f32`.
    fn try_from(tensor: Tensor) -> RusTorchResult<Self> {
        let dtype = tensor.dtype();
        if dtype == DType::F32 {
            return Ok(Self(tensor));
        }
        let advice = match dtype {
            DType::F64 => "to_dtype(DType::F32) rounds it explicitly, a Tensor stays f64",
            DType::F16 | DType::BF16 => "to_dtype(DType::F32) widens it without loss",
            _ => "to_dtype(DType::F32) converts it explicitly",
        };
        let expected = format_args!(
            "a tensor of f32, since nothing is converted without being asked ({advice})"
        );
        Err(OpError::new("F32Tensor", expected, tensor.ty()).into())
    }
}

impl From<F32Tensor> for Tensor {
    fn from(tensor: F32Tensor) -> Self {
        tensor.0
    }
}

impl AsRef<Tensor> for F32Tensor {
    fn as_ref(&self) -> &Tensor {
        &self.0
    }
}

impl fmt::Debug for F32Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[track_calls]
impl F32Tensor {
    /// The elements `data`, in row-major order, as a tensor of `shape`.
    ///
    /// # Errors
    /// The same errors as [`Tensor::from_slice`].
    pub fn from_slice(data: &[f32], shape: impl IntoShape) -> RusTorchResult<Self> {
        Tensor::from_slice(data, shape)?.try_into()
    }

    /// [`F32Tensor::from_slice`] of a vector, whose memory becomes the tensor's.
    ///
    /// # Errors
    /// The same errors as [`Tensor::from_vec`].
    pub fn from_vec(data: Vec<f32>, shape: impl IntoShape) -> RusTorchResult<Self> {
        Tensor::from_vec(data, shape)?.try_into()
    }

    /// Zeros.
    ///
    /// # Errors
    /// Fails for a shape too large for memory.
    pub fn zeros(shape: impl IntoShape) -> RusTorchResult<Self> {
        Tensor::zeros(shape, DType::F32)?.try_into()
    }

    /// Ones.
    ///
    /// # Errors
    /// Fails for a shape too large for memory.
    pub fn ones(shape: impl IntoShape) -> RusTorchResult<Self> {
        Tensor::ones(shape, DType::F32)?.try_into()
    }

    /// A tensor of one number everywhere.
    ///
    /// # Errors
    /// Fails for a shape too large for memory.
    pub fn full(shape: impl IntoShape, value: f32) -> RusTorchResult<Self> {
        Tensor::full(shape, value, DType::F32)?.try_into()
    }

    /// Random numbers, uniform in `[0, 1)`.
    ///
    /// # Errors
    /// Fails for a shape too large for memory.
    pub fn rand(shape: impl IntoShape) -> RusTorchResult<Self> {
        Tensor::rand(shape, DType::F32)?.try_into()
    }

    /// Random numbers of the standard normal distribution.
    ///
    /// # Errors
    /// Fails for a shape too large for memory.
    pub fn randn(shape: impl IntoShape) -> RusTorchResult<Self> {
        Tensor::randn(shape, DType::F32)?.try_into()
    }

    /// Sizes of the dimensions, slowest first.
    pub fn shape(&self) -> &[usize] {
        self.0.shape()
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.0.rank()
    }

    /// Number of elements.
    pub fn numel(&self) -> usize {
        self.0.numel()
    }

    /// Computes the value, unless it is computed already, and returns the tensor.
    ///
    /// # Errors
    /// See [`eval_all`](crate::eval_all).
    pub fn eval(&self) -> RusTorchResult<&Self> {
        self.0.eval()?;
        Ok(self)
    }

    /// The elements in row-major order.
    ///
    /// # Errors
    /// See [`eval_all`](crate::eval_all).
    pub fn to_vec(&self) -> RusTorchResult<Vec<f32>> {
        self.0.to_vec()
    }

    /// The only element of a tensor of any rank.
    ///
    /// # Errors
    /// Fails if the tensor has not exactly one element. Also the errors of
    /// [`eval_all`](crate::eval_all).
    pub fn item(&self) -> RusTorchResult<f32> {
        self.0.to_scalar()
    }

    /// The same elements on another device; see [`Tensor::to_device`].
    ///
    /// # Errors
    /// The same errors as [`Tensor::to_device`].
    pub fn to_device(&self, device: DeviceType) -> RusTorchResult<Self> {
        self.0.to_device(device)?.try_into()
    }

    /// The device that computed the elements, see [`Tensor::device`].
    pub fn device(&self) -> Option<DeviceType> {
        self.0.device()
    }

    /// The devices that can use the elements as they are now.
    pub fn device_state(&self) -> DeviceState {
        match self.0.storage_in_memory() {
            Some(storage) => DeviceState::of(&storage),
            None => DeviceState::Pending,
        }
    }

    /// Returns whether this tensor requires a gradient. See [`Tensor::requires_grad`].
    pub fn requires_grad(&self) -> bool {
        self.0.requires_grad()
    }

    /// Sets whether this handle, and tensors computed from it, require a gradient; see
    /// [`Tensor::requires_grad_`].
    pub fn requires_grad_(&mut self, requires_grad: bool) -> &mut Self {
        self.0.want_gradient(requires_grad);
        self
    }

    /// Adds the gradients of the leaves that this tensor of one element depends on to their
    /// [`F32Tensor::grad`]; see [`Tensor::backward`].
    ///
    /// # Errors
    /// The same errors as [`Tensor::backward`].
    pub fn backward(&self) -> RusTorchResult<()> {
        self.0.backward()
    }

    /// The gradient that backward passes have added up; see [`Tensor::grad`].
    pub fn grad(&self) -> Option<Self> {
        // A gradient has the dtype of its tensor.
        self.0.grad().map(Self)
    }

    /// Removes the gradient: the next backward pass starts from zero.
    pub fn zero_grad(&self) {
        self.0.zero_grad();
    }

    /// The same value, without a gradient.
    pub fn detach(&self) -> Self {
        Self(self.0.detach())
    }
}
