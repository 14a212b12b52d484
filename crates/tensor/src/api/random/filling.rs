//! Tensors filled with random numbers, and random tensors like others.

use rustorch_ir::DType;
use rustorch_macros::track_calls;

use super::{Generator, default_generator};
use crate::Tensor;
use crate::api::promote::{AsOperand, Operand};
use crate::error::{RusTorchResult, require};

/// The methods that fill a tensor: each line names one, its arguments, and its distribution.
macro_rules! filling {
    ($($doc:literal $name:ident($($argument:ident: $type:ty),*) = $drawn:expr;)*) => {
        #[rustorch_macros::track_calls]
        impl Tensor {
            $(#[doc = $doc]
            ///
            /// Numbers come from the [default generator](default_generator) and are written as
            /// [`Tensor::copy_`] writes.
            ///
            /// # Errors
            /// The errors of the generator's function and of [`Tensor::copy_`].
            pub fn $name(&mut self, $($argument: $type),*) -> RusTorchResult<&mut Self> {
                let drawn = ($drawn)(default_generator(), &*self $(, $argument.as_operand()?)*)?;
                self.copy_(&drawn)
            })*
        }
    };
}

filling! {
    "Fills the tensor with uniform numbers from `[low, high)`. Takes floats and complex numbers."
    uniform_(low: impl AsOperand, high: impl AsOperand) =
        |g: &Generator, x: &Tensor, low: Operand, high: Operand| {
            g.uniform(low, high, x.shape(), x.dtype())
        };
    "Fills the tensor with normal numbers. Takes floats and complex numbers."
    normal_(mean: impl AsOperand, std: impl AsOperand) =
        |g: &Generator, x: &Tensor, mean: Operand, std: Operand| {
            const NAME: &str = "normal_";
            let legal = x.dtype().is_float() || x.dtype().is_complex();
            require(NAME, legal, "a floating-point or complex dtype", x.dtype())?;
            if let Operand::Scalar(std) = std {
                let expected = "a deviation that is not negative";
                require(NAME, std.as_f64() >= 0.0, expected, std)?;
            }
            let [mean, std] = [mean.to_tensor(NAME, x.dtype())?, std.to_tensor(NAME, x.dtype())?];
            g.randn(x.shape(), x.dtype())?.mul(&std)?.add(&mean)
        };
    "Fills the tensor with `exp` of normal numbers. Takes floats."
    log_normal_(mean: impl AsOperand, std: impl AsOperand) =
        |g: &Generator, x: &Tensor, mean: Operand, std: Operand| {
            g.log_normal(mean, std, x.shape(), x.dtype())
        };
    "Fills the tensor with numbers of Cauchy's distribution. Takes floats."
    cauchy_(median: impl AsOperand, sigma: impl AsOperand) =
        |g: &Generator, x: &Tensor, median: Operand, sigma: Operand| {
            g.cauchy(median, sigma, x.shape(), x.dtype())
        };
    "Fills the tensor with exponentially distributed numbers. Takes floats."
    exponential_(rate: impl AsOperand) =
        |g: &Generator, x: &Tensor, rate: Operand| g.exponential(rate, x.shape(), x.dtype());
    "Fills the tensor with numbers of trials up to the first success. Takes floats and integers."
    geometric_(probability: impl AsOperand) =
        |g: &Generator, x: &Tensor, p: Operand| g.geometric(p, x.shape(), x.dtype());
    "Fills the tensor, of any dtype, with 1 with this probability, else 0."
    bernoulli_(probability: impl AsOperand) =
        |g: &Generator, x: &Tensor, p: Operand| {
            let p = p.to_tensor("bernoulli_", DType::F32)?.expand(x.shape())?;
            g.bernoulli(&p)
        };
}

#[track_calls]
impl Tensor {
    /// Fills the tensor with integers from `low..high`, drawn from the
    /// [default generator](default_generator) and written as [`Tensor::copy_`] writes.
    ///
    /// # Errors
    /// The same errors as [`Tensor::randint`] and [`Tensor::copy_`].
    pub fn random_(&mut self, low: i64, high: i64) -> RusTorchResult<&mut Self> {
        let drawn = self.randint_like(low, high)?;
        self.copy_(&drawn)
    }

    /// [`Tensor::rand`] in this tensor's shape and dtype.
    ///
    /// # Errors
    /// The same errors as [`Tensor::rand`].
    pub fn rand_like(&self) -> RusTorchResult<Self> {
        Self::rand(self.shape(), self.dtype())
    }

    /// [`Tensor::rand`] in this tensor's shape.
    ///
    /// # Errors
    /// The same errors as [`Tensor::rand`].
    pub fn rand_like_with(&self, dtype: DType) -> RusTorchResult<Self> {
        Self::rand(self.shape(), dtype)
    }

    /// [`Tensor::randn`] in this tensor's shape.
    ///
    /// # Errors
    /// The same errors as [`Tensor::randn`].
    pub fn randn_like_with(&self, dtype: DType) -> RusTorchResult<Self> {
        Self::randn(self.shape(), dtype)
    }

    /// [`Tensor::randint`] in this tensor's shape.
    ///
    /// # Errors
    /// The same errors as [`Tensor::randint`].
    pub fn randint_like_with(&self, low: i64, high: i64, dtype: DType) -> RusTorchResult<Self> {
        Self::randint(low, high, self.shape(), dtype)
    }

    /// [`Tensor::randn`] in this tensor's shape and dtype.
    ///
    /// # Errors
    /// The same errors as [`Tensor::randn`].
    pub fn randn_like(&self) -> RusTorchResult<Self> {
        Self::randn(self.shape(), self.dtype())
    }

    /// [`Tensor::randint`] in this tensor's shape and dtype.
    ///
    /// # Errors
    /// The same errors as [`Tensor::randint`].
    pub fn randint_like(&self, low: i64, high: i64) -> RusTorchResult<Self> {
        Self::randint(low, high, self.shape(), self.dtype())
    }
}
