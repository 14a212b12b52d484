//! Tensors written over with random numbers, and new ones like others.

use rustorch_ir::DType;
use rustorch_macros::track_calls;

use super::{Generator, default_generator};
use crate::Tensor;
use crate::error::{RusTorchResult, require};
use crate::promote::{AsOperand, Operand};

/// The methods that write over a tensor: each line names one, its arguments, and what is drawn.
macro_rules! filling {
    ($($doc:literal $name:ident($($argument:ident: $type:ty),*) = $drawn:expr;)*) => {
        #[rustorch_macros::track_calls]
        impl Tensor {
            $(#[doc = $doc]
            ///
            /// Drawn from the [default generator](default_generator), and written as
            /// [`Tensor::copy_`] writes.
            ///
            /// # Errors
            /// Those of the generator's function and of [`Tensor::copy_`].
            pub fn $name(&mut self, $($argument: $type),*) -> RusTorchResult<&mut Self> {
                let drawn = ($drawn)(default_generator(), &*self $(, $argument.as_operand()?)*)?;
                self.copy_(&drawn)
            })*
        }
    };
}

filling! {
    "Writes numbers drawn evenly from `[low, high)` over the elements. Floats or complex numbers."
    uniform_(low: impl AsOperand, high: impl AsOperand) =
        |g: &Generator, x: &Tensor, low: Operand, high: Operand| {
            g.uniform(low, high, x.shape(), x.dtype())
        };
    "Writes normal numbers over the elements. Floats or complex numbers."
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
    "Writes `exp` of normal numbers over the elements. Floats."
    log_normal_(mean: impl AsOperand, std: impl AsOperand) =
        |g: &Generator, x: &Tensor, mean: Operand, std: Operand| {
            g.log_normal(mean, std, x.shape(), x.dtype())
        };
    "Writes numbers of Cauchy's distribution over the elements. Floats."
    cauchy_(median: impl AsOperand, sigma: impl AsOperand) =
        |g: &Generator, x: &Tensor, median: Operand, sigma: Operand| {
            g.cauchy(median, sigma, x.shape(), x.dtype())
        };
    "Writes exponentially distributed numbers over the elements. Floats."
    exponential_(rate: impl AsOperand) =
        |g: &Generator, x: &Tensor, rate: Operand| g.exponential(rate, x.shape(), x.dtype());
    "Writes numbers of trials to a first success over the elements. Floats or integers."
    geometric_(probability: impl AsOperand) =
        |g: &Generator, x: &Tensor, p: Operand| g.geometric(p, x.shape(), x.dtype());
    "Writes 1 with this probability, else 0, over the elements, of any dtype."
    bernoulli_(probability: impl AsOperand) =
        |g: &Generator, x: &Tensor, p: Operand| {
            let p = p.to_tensor("bernoulli_", DType::F32)?.expand(x.shape())?;
            g.bernoulli(&p)
        };
}

#[track_calls]
impl Tensor {
    /// Writes integers of `low..high` over the elements, drawn from the
    /// [default generator](default_generator) and written as [`Tensor::copy_`] writes.
    ///
    /// # Errors
    /// As [`Tensor::randint`] and [`Tensor::copy_`].
    pub fn random_(&mut self, low: i64, high: i64) -> RusTorchResult<&mut Self> {
        let drawn = self.randint_like(low, high)?;
        self.copy_(&drawn)
    }

    /// [`Tensor::rand`] in this tensor's shape and dtype.
    ///
    /// # Errors
    /// As [`Tensor::rand`].
    pub fn rand_like(&self) -> RusTorchResult<Self> {
        Self::rand(self.shape(), self.dtype())
    }

    /// [`Tensor::rand`] in this tensor's shape.
    ///
    /// # Errors
    /// As [`Tensor::rand`].
    pub fn rand_like_with(&self, dtype: DType) -> RusTorchResult<Self> {
        Self::rand(self.shape(), dtype)
    }

    /// [`Tensor::randn`] in this tensor's shape.
    ///
    /// # Errors
    /// As [`Tensor::randn`].
    pub fn randn_like_with(&self, dtype: DType) -> RusTorchResult<Self> {
        Self::randn(self.shape(), dtype)
    }

    /// [`Tensor::randint`] in this tensor's shape.
    ///
    /// # Errors
    /// As [`Tensor::randint`].
    pub fn randint_like_with(&self, low: i64, high: i64, dtype: DType) -> RusTorchResult<Self> {
        Self::randint(low, high, self.shape(), dtype)
    }

    /// [`Tensor::randn`] in this tensor's shape and dtype.
    ///
    /// # Errors
    /// As [`Tensor::randn`].
    pub fn randn_like(&self) -> RusTorchResult<Self> {
        Self::randn(self.shape(), self.dtype())
    }

    /// [`Tensor::randint`] in this tensor's shape and dtype.
    ///
    /// # Errors
    /// As [`Tensor::randint`].
    pub fn randint_like(&self, low: i64, high: i64) -> RusTorchResult<Self> {
        Self::randint(low, high, self.shape(), self.dtype())
    }
}
