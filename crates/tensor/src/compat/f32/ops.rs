//! The operations of [`Tensor`] that stay in `f32`, for tensors whose type is `f32`.

use std::ops::{Add, Div, Mul, Neg, Sub};

use rustorch_macros::track_calls;

use super::F32Tensor;
use crate::api::nn::{AvgPoolOptions, ConvOptions, ConvTransposeOptions, MaxPoolOptions};
use crate::api::promote::{Number, Operand};
use crate::args::dims::{Integer, IntoDims, IntoShape, IntoSizes};
use crate::error::RusTorchResult;
use crate::{AttentionOptions, Tensor};

/// The other operand of a binary function: an `f32` tensor or a number, which counts as `f32`.
#[derive(Clone, Copy)]
pub struct F32Operand<'a>(Operand<'a>);

impl<'a> From<&'a F32Tensor> for F32Operand<'a> {
    fn from(tensor: &'a F32Tensor) -> Self {
        Self(tensor.as_ref().into())
    }
}

macro_rules! numbers {
    ($($number:ty),*) => {
        $(impl From<$number> for F32Operand<'_> {
            fn from(number: $number) -> Self {
                Self(Operand::Scalar(number.to_number()))
            }
        })*
    };
}

numbers!(f32, f64, i32, i64);

/// One method for each line, with its arguments, as in [`Tensor`].
macro_rules! methods {
    ($($name:ident($($arg:ident: $ty:ty),*);)*) => {
        #[rustorch_macros::track_calls]
        impl F32Tensor {
            $(#[doc = concat!("The same as [`Tensor::", stringify!($name), "`].")]
            ///
            /// # Errors
            /// The errors of that method.
            pub fn $name(&self, $($arg: $ty),*) -> RusTorchResult<Self> {
                self.as_ref().$name($($arg),*)?.try_into()
            })*
        }
    };
}

methods! {
    neg();
    abs();
    exp();
    log();
    sqrt();
    rsqrt();
    reciprocal();
    sin();
    cos();
    tanh();
    erf();
    square();
    relu();
    sigmoid();
    silu();
    gelu();
    gelu_tanh();
    softmax(dim: impl Integer);
    log_softmax(dim: impl Integer);
    sum(dims: impl IntoDims, keepdim: bool);
    prod(dims: impl IntoDims, keepdim: bool);
    max(dims: impl IntoDims, keepdim: bool);
    min(dims: impl IntoDims, keepdim: bool);
    mean(dims: impl IntoDims, keepdim: bool);
    var(dims: impl IntoDims, correction: impl Into<f64>, keepdim: bool);
    std(dims: impl IntoDims, correction: impl Into<f64>, keepdim: bool);
    logsumexp(dims: impl IntoDims, keepdim: bool);
    cumsum(dim: impl Integer);
    max_pool2d(kernel: impl crate::PerDim<2>, options: &MaxPoolOptions<2>);
    avg_pool2d(kernel: impl crate::PerDim<2>, options: &AvgPoolOptions<2>);
    reshape(shape: impl IntoSizes);
    flatten(start: impl Integer, end: impl Integer);
    squeeze(dims: impl IntoDims);
    unsqueeze(dim: impl Integer);
    permute(dims: impl IntoDims);
    transpose(a: impl Integer, b: impl Integer);
    t();
    narrow(dim: impl Integer, start: usize, length: usize);
    select(dim: impl Integer, index: impl Integer);
    expand(shape: impl IntoSizes);
    contiguous();
}

/// One method for each line, whose operand may be a number, as in [`Tensor`].
macro_rules! binary_methods {
    ($($name:ident),*) => {
        #[rustorch_macros::track_calls]
        impl F32Tensor {
            $(#[doc = concat!("The same as [`Tensor::", stringify!($name), "`].")]
            ///
            /// # Errors
            /// The errors of that method.
            pub fn $name<'a>(&self, other: impl Into<F32Operand<'a>>) -> RusTorchResult<Self> {
                self.as_ref().$name(other.into().0)?.try_into()
            })*
        }
    };
}

binary_methods!(add, sub, mul, div, pow, maximum, minimum);

/// One method for each line, of another tensor, as in [`Tensor`].
macro_rules! product_methods {
    ($($name:ident),*) => {
        #[rustorch_macros::track_calls]
        impl F32Tensor {
            $(#[doc = concat!("The same as [`Tensor::", stringify!($name), "`].")]
            ///
            /// # Errors
            /// The errors of that method.
            pub fn $name(&self, other: &Self) -> RusTorchResult<Self> {
                self.as_ref().$name(other.as_ref())?.try_into()
            })*
        }
    };
}

product_methods!(matmul, mm, bmm, mv, dot);

#[track_calls]
impl F32Tensor {
    /// The same as [`Tensor::linear`].
    ///
    /// # Errors
    /// The errors of that method.
    pub fn linear(&self, weight: &Self, bias: Option<&Self>) -> RusTorchResult<Self> {
        let result = (self.as_ref()).linear(weight.as_ref(), bias.map(Self::as_ref))?;
        result.try_into()
    }

    /// The same as [`Tensor::conv2d`].
    ///
    /// # Errors
    /// The errors of that method.
    pub fn conv2d(
        &self,
        weight: &Self,
        bias: Option<&Self>,
        options: &ConvOptions<2>,
    ) -> RusTorchResult<Self> {
        let result = (self.as_ref()).conv2d(weight.as_ref(), bias.map(Self::as_ref), options)?;
        result.try_into()
    }

    /// The same as [`Tensor::conv_transpose2d`].
    ///
    /// # Errors
    /// The errors of that method.
    pub fn conv_transpose2d(
        &self,
        weight: &Self,
        bias: Option<&Self>,
        options: &ConvTransposeOptions<2>,
    ) -> RusTorchResult<Self> {
        let x: &Tensor = self.as_ref();
        let result = x.conv_transpose2d(weight.as_ref(), bias.map(Self::as_ref), options)?;
        result.try_into()
    }

    /// The same as [`Tensor::layer_norm`].
    ///
    /// # Errors
    /// The errors of that method.
    pub fn layer_norm(
        &self,
        normalized_shape: impl IntoShape,
        weight: Option<&Self>,
        bias: Option<&Self>,
        eps: f64,
    ) -> RusTorchResult<Self> {
        let [w, b] = [weight, bias].map(|t| t.map(Self::as_ref));
        let x: &Tensor = self.as_ref();
        x.layer_norm(normalized_shape, w, b, eps)?.try_into()
    }

    /// The same as [`Tensor::rms_norm`].
    ///
    /// # Errors
    /// The errors of that method.
    pub fn rms_norm(
        &self,
        normalized_shape: impl IntoShape,
        weight: Option<&Self>,
        eps: impl Into<Option<f64>>,
    ) -> RusTorchResult<Self> {
        let weight = weight.map(Self::as_ref);
        (self.as_ref())
            .rms_norm(normalized_shape, weight, eps)?
            .try_into()
    }

    /// The same as [`Tensor::scaled_dot_product_attention`].
    ///
    /// # Errors
    /// The errors of that method.
    pub fn scaled_dot_product_attention(
        &self,
        keys: &Self,
        values: &Self,
        options: AttentionOptions,
    ) -> RusTorchResult<Self> {
        let (q, k, v) = (self.as_ref(), keys.as_ref(), values.as_ref());
        let result = q.scaled_dot_product_attention(k, v, options)?;
        result.try_into()
    }

    /// The same as [`Tensor::cat`].
    ///
    /// # Errors
    /// The errors of that method.
    pub fn cat(tensors: &[&Self], dim: impl Integer) -> RusTorchResult<Self> {
        let parts: Vec<&Tensor> = tensors.iter().map(|t| t.as_ref()).collect();
        Tensor::cat(&parts, dim)?.try_into()
    }
}

macro_rules! operators {
    ($($Trait:ident::$method:ident),*) => {
        $(#[rustorch_macros::track_calls]
        impl<'a, T: Into<F32Operand<'a>>> $Trait<T> for &F32Tensor {
            type Output = RusTorchResult<F32Tensor>;

            fn $method(self, other: T) -> Self::Output {
                F32Tensor::$method(self, other)
            }
        })*
    };
}

operators!(Add::add, Sub::sub, Mul::mul, Div::div);

#[track_calls]
impl Neg for &F32Tensor {
    type Output = RusTorchResult<F32Tensor>;

    fn neg(self) -> Self::Output {
        F32Tensor::neg(self)
    }
}
