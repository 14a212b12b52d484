//! The operations of [`Tensor`] that stay in `f32`, on tensors that are known to be.

use std::ops::{Add, Div, Mul, Neg, Sub};

use rustorch_ir::ops::{Conv2d, ConvTranspose2d};

use super::F32Tensor;
use crate::error::RusTorchResult;
use crate::promote::Operand;
use crate::{AttentionOptions, Dims, Sizes, Tensor};

/// The other operand of a function of two: an `f32` tensor or a number, which counts as `f32`.
#[derive(Clone, Copy)]
pub struct F32Operand<'a> {
    operand: Operand<'a>,
    requires_grad: bool,
}

impl<'a> From<&'a F32Tensor> for F32Operand<'a> {
    fn from(tensor: &'a F32Tensor) -> Self {
        Self {
            operand: tensor.as_ref().into(),
            requires_grad: tensor.requires_grad(),
        }
    }
}

macro_rules! numbers {
    ($($number:ty),*) => {
        $(impl From<$number> for F32Operand<'_> {
            fn from(number: $number) -> Self {
                Self {
                    operand: number.into(),
                    requires_grad: false,
                }
            }
        })*
    };
}

numbers!(f32, f64, i32, i64);

/// One method for each line, with its arguments: as that of [`Tensor`].
macro_rules! methods {
    ($($name:ident($($arg:ident: $ty:ty),*);)*) => {
        impl F32Tensor {
            $(#[doc = concat!("As [`Tensor::", stringify!($name), "`].")]
            ///
            /// # Errors
            /// The same.
            pub fn $name(&self, $($arg: $ty),*) -> RusTorchResult<Self> {
                Self::result(self.as_ref().$name($($arg),*)?, self.requires_grad())
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
    softmax(dim: isize);
    log_softmax(dim: isize);
    sum(dims: impl Into<Dims>, keepdim: bool);
    prod(dims: impl Into<Dims>, keepdim: bool);
    max(dims: impl Into<Dims>, keepdim: bool);
    min(dims: impl Into<Dims>, keepdim: bool);
    mean(dims: impl Into<Dims>, keepdim: bool);
    var(dims: impl Into<Dims>, correction: usize, keepdim: bool);
    std(dims: impl Into<Dims>, correction: usize, keepdim: bool);
    logsumexp(dims: impl Into<Dims>, keepdim: bool);
    cumsum(dim: isize);
    max_pool2d(kernel: [usize; 2], stride: [usize; 2], padding: [usize; 2], dilation: [usize; 2]);
    avg_pool2d(kernel: [usize; 2], stride: [usize; 2], padding: [usize; 2]);
    reshape(shape: impl Into<Sizes>);
    flatten(start: isize, end: isize);
    squeeze(dims: impl Into<Dims>);
    unsqueeze(dim: isize);
    permute(dims: impl AsRef<[isize]>);
    transpose(a: isize, b: isize);
    t();
    narrow(dim: isize, start: usize, length: usize);
    select(dim: isize, index: isize);
    expand(shape: impl Into<Sizes>);
    contiguous();
}

/// One method for each line, of an operand that may be a number: as that of [`Tensor`].
macro_rules! binary_methods {
    ($($name:ident),*) => {
        impl F32Tensor {
            $(#[doc = concat!("As [`Tensor::", stringify!($name), "`].")]
            ///
            /// # Errors
            /// The same.
            pub fn $name<'a>(&self, other: impl Into<F32Operand<'a>>) -> RusTorchResult<Self> {
                let other = other.into();
                let requires_grad = self.requires_grad() || other.requires_grad;
                Self::result(self.as_ref().$name(other.operand)?, requires_grad)
            })*
        }
    };
}

binary_methods!(add, sub, mul, div, pow, maximum, minimum);

/// One method for each line, of another tensor: as that of [`Tensor`].
macro_rules! product_methods {
    ($($name:ident),*) => {
        impl F32Tensor {
            $(#[doc = concat!("As [`Tensor::", stringify!($name), "`].")]
            ///
            /// # Errors
            /// The same.
            pub fn $name(&self, other: &Self) -> RusTorchResult<Self> {
                self.with([Some(other)], self.as_ref().$name(other.as_ref())?)
            })*
        }
    };
}

product_methods!(matmul, mm, bmm, mv, dot);

impl F32Tensor {
    /// What was computed of this and other tensors.
    fn with<const N: usize>(
        &self,
        others: [Option<&Self>; N],
        result: Tensor,
    ) -> RusTorchResult<Self> {
        let mut all = others.into_iter().flatten().chain([self]);
        Self::result(result, all.any(Self::requires_grad))
    }

    /// As [`Tensor::linear`].
    ///
    /// # Errors
    /// The same.
    pub fn linear(&self, weight: &Self, bias: Option<&Self>) -> RusTorchResult<Self> {
        let result = (self.as_ref()).linear(weight.as_ref(), bias.map(Self::as_ref))?;
        self.with([Some(weight), bias], result)
    }

    /// As [`Tensor::conv2d`].
    ///
    /// # Errors
    /// The same.
    pub fn conv2d(
        &self,
        weight: &Self,
        bias: Option<&Self>,
        parameters: &Conv2d,
    ) -> RusTorchResult<Self> {
        let result = (self.as_ref()).conv2d(weight.as_ref(), bias.map(Self::as_ref), parameters)?;
        self.with([Some(weight), bias], result)
    }

    /// As [`Tensor::conv_transpose2d`].
    ///
    /// # Errors
    /// The same.
    pub fn conv_transpose2d(
        &self,
        weight: &Self,
        bias: Option<&Self>,
        parameters: &ConvTranspose2d,
    ) -> RusTorchResult<Self> {
        let x: &Tensor = self.as_ref();
        let result = x.conv_transpose2d(weight.as_ref(), bias.map(Self::as_ref), parameters)?;
        self.with([Some(weight), bias], result)
    }

    /// As [`Tensor::layer_norm`].
    ///
    /// # Errors
    /// The same.
    pub fn layer_norm(
        &self,
        normalized_shape: impl AsRef<[usize]>,
        weight: Option<&Self>,
        bias: Option<&Self>,
        eps: f64,
    ) -> RusTorchResult<Self> {
        let [w, b] = [weight, bias].map(|t| t.map(Self::as_ref));
        let x: &Tensor = self.as_ref();
        self.with([weight, bias], x.layer_norm(normalized_shape, w, b, eps)?)
    }

    /// As [`Tensor::rms_norm`].
    ///
    /// # Errors
    /// The same.
    pub fn rms_norm(&self, weight: Option<&Self>, eps: f64) -> RusTorchResult<Self> {
        let result = (self.as_ref()).rms_norm(weight.map(Self::as_ref), eps)?;
        self.with([weight], result)
    }

    /// As [`Tensor::scaled_dot_product_attention`].
    ///
    /// # Errors
    /// The same.
    pub fn scaled_dot_product_attention(
        &self,
        keys: &Self,
        values: &Self,
        options: AttentionOptions,
    ) -> RusTorchResult<Self> {
        let (q, k, v) = (self.as_ref(), keys.as_ref(), values.as_ref());
        let result = q.scaled_dot_product_attention(k, v, options)?;
        self.with([Some(keys), Some(values)], result)
    }

    /// As [`Tensor::cat`].
    ///
    /// # Errors
    /// The same.
    pub fn cat(tensors: &[&Self], dim: isize) -> RusTorchResult<Self> {
        let parts: Vec<&Tensor> = tensors.iter().map(|t| t.as_ref()).collect();
        let requires_grad = tensors.iter().any(|t| t.requires_grad());
        Self::result(Tensor::cat(&parts, dim)?, requires_grad)
    }
}

macro_rules! operators {
    ($($Trait:ident::$method:ident),*) => {
        $(impl<'a, T: Into<F32Operand<'a>>> $Trait<T> for &F32Tensor {
            type Output = RusTorchResult<F32Tensor>;

            fn $method(self, other: T) -> Self::Output {
                F32Tensor::$method(self, other)
            }
        })*
    };
}

operators!(Add::add, Sub::sub, Mul::mul, Div::div);

impl Neg for &F32Tensor {
    type Output = RusTorchResult<F32Tensor>;

    fn neg(self) -> Self::Output {
        F32Tensor::neg(self)
    }
}
