//! Traits and functions that prefer a GPU.

use rustorch_macros::track_calls;

use crate::api::nn::{
    AvgPoolOptions, BatchNormOptions, ConvOptions, ConvTransposeOptions, MaxPoolOptions,
};
use crate::device::manager::prefer_gpu;
use crate::error::{RusTorchResult, require};
use crate::{AttentionOptions, Integer, IntoDims, Tensor};

/// A binary elementwise function.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ElementwiseOp {
    /// `a + b`
    Add,
    /// `a - b`
    Sub,
    /// `a · b`
    Mul,
    /// `a / b`
    Div,
    /// `aᵇ`
    Pow,
    /// The larger element.
    Maximum,
    /// The smaller element.
    Minimum,
}

/// A reduction of elements.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ReductionOp {
    /// The sum.
    Sum,
    /// The mean.
    Mean,
    /// The product.
    Prod,
    /// The largest.
    Max,
    /// The smallest.
    Min,
    /// The standard deviation, with Bessel's correction.
    Std,
    /// The variance, with Bessel's correction.
    Var,
}

/// Products of matrices on a GPU, if there is one.
pub trait GpuLinearAlgebra {
    /// [`Tensor::matmul`] for any operands that it supports.
    ///
    /// # Errors
    /// The errors of that method.
    fn gpu_matmul(&self, other: &Tensor) -> RusTorchResult<Tensor>;

    /// [`Tensor::bmm`] of `[b, m, k]` and `[b, k, n]`: `[b, m, n]`.
    ///
    /// # Errors
    /// The errors of that method.
    fn gpu_batch_matmul(&self, other: &Tensor) -> RusTorchResult<Tensor>;

    /// [`Tensor::mv`] of `[m, k]` and `[k]`: `[m]`.
    ///
    /// # Errors
    /// The errors of that method.
    fn gpu_matvec(&self, vector: &Tensor) -> RusTorchResult<Tensor>;
}

#[track_calls]
impl GpuLinearAlgebra for Tensor {
    fn gpu_matmul(&self, other: &Tensor) -> RusTorchResult<Tensor> {
        prefer_gpu(|| self.matmul(other))
    }

    fn gpu_batch_matmul(&self, other: &Tensor) -> RusTorchResult<Tensor> {
        prefer_gpu(|| self.bmm(other))
    }

    fn gpu_matvec(&self, vector: &Tensor) -> RusTorchResult<Tensor> {
        prefer_gpu(|| self.mv(vector))
    }
}

/// Reductions that prefer a GPU: along one dimension, which is dropped, or over all.
#[track_calls]
pub trait GpuReduction {
    /// [`gpu_reduce`] with any reduction.
    ///
    /// # Errors
    /// The errors of that method.
    fn gpu_reduce(&self, op: ReductionOp, dim: Option<usize>) -> RusTorchResult<Tensor>;

    /// The sum.
    ///
    /// # Errors
    /// The same errors as [`Tensor::sum`].
    fn gpu_sum(&self, dim: Option<usize>) -> RusTorchResult<Tensor> {
        self.gpu_reduce(ReductionOp::Sum, dim)
    }

    /// The mean.
    ///
    /// # Errors
    /// The same errors as [`Tensor::mean`].
    fn gpu_mean(&self, dim: Option<usize>) -> RusTorchResult<Tensor> {
        self.gpu_reduce(ReductionOp::Mean, dim)
    }

    /// The largest element.
    ///
    /// # Errors
    /// The same errors as [`Tensor::max`].
    fn gpu_max(&self, dim: Option<usize>) -> RusTorchResult<Tensor> {
        self.gpu_reduce(ReductionOp::Max, dim)
    }

    /// The smallest element.
    ///
    /// # Errors
    /// The same errors as [`Tensor::min`].
    fn gpu_min(&self, dim: Option<usize>) -> RusTorchResult<Tensor> {
        self.gpu_reduce(ReductionOp::Min, dim)
    }

    /// The standard deviation, with Bessel's correction.
    ///
    /// # Errors
    /// The same errors as [`Tensor::std`].
    fn gpu_std(&self, dim: Option<usize>) -> RusTorchResult<Tensor> {
        self.gpu_reduce(ReductionOp::Std, dim)
    }

    /// The variance, with Bessel's correction.
    ///
    /// # Errors
    /// The same errors as [`Tensor::var`].
    fn gpu_var(&self, dim: Option<usize>) -> RusTorchResult<Tensor> {
        self.gpu_reduce(ReductionOp::Var, dim)
    }
}

#[track_calls]
impl GpuReduction for Tensor {
    fn gpu_reduce(&self, op: ReductionOp, dim: Option<usize>) -> RusTorchResult<Tensor> {
        let dims = dim.map(Integer::to_isize).into_dims();
        prefer_gpu(|| match op {
            ReductionOp::Sum => self.sum(dims, false),
            ReductionOp::Mean => self.mean(dims, false),
            ReductionOp::Prod => self.prod(dims, false),
            ReductionOp::Max => self.max(dims, false),
            ReductionOp::Min => self.min(dims, false),
            ReductionOp::Std => self.std(dims, 1, false),
            ReductionOp::Var => self.var(dims, 1, false),
        })
    }
}

/// Convolutions of images on a GPU, if there is one.
pub trait GpuConvolution {
    /// [`Tensor::conv2d`] of an image `[c, h, w]` or a batch of them.
    ///
    /// # Errors
    /// The errors of that method.
    fn gpu_conv2d(
        &self,
        weight: &Tensor,
        bias: Option<&Tensor>,
        options: &ConvOptions<2>,
    ) -> RusTorchResult<Tensor>;

    /// [`Tensor::conv2d`] of each image of a list, all of one shape `[c, h, w]`, as one convolution:
    /// `[n, o, h', w']`.
    ///
    /// # Errors
    /// The same errors as that method. Also fails for images of different shapes, or an empty list.
    fn gpu_batch_conv2d(
        images: &[&Tensor],
        weight: &Tensor,
        bias: Option<&Tensor>,
        options: &ConvOptions<2>,
    ) -> RusTorchResult<Tensor>;

    /// [`Tensor::conv_transpose2d`].
    ///
    /// # Errors
    /// The errors of that method.
    fn gpu_conv2d_transpose(
        &self,
        weight: &Tensor,
        bias: Option<&Tensor>,
        options: &ConvTransposeOptions<2>,
    ) -> RusTorchResult<Tensor>;
}

#[track_calls]
impl GpuConvolution for Tensor {
    fn gpu_conv2d(
        &self,
        weight: &Tensor,
        bias: Option<&Tensor>,
        options: &ConvOptions<2>,
    ) -> RusTorchResult<Tensor> {
        prefer_gpu(|| self.conv2d(weight, bias, options))
    }

    fn gpu_batch_conv2d(
        images: &[&Tensor],
        weight: &Tensor,
        bias: Option<&Tensor>,
        options: &ConvOptions<2>,
    ) -> RusTorchResult<Tensor> {
        prefer_gpu(|| Tensor::stack(images, 0)?.conv2d(weight, bias, options))
    }

    fn gpu_conv2d_transpose(
        &self,
        weight: &Tensor,
        bias: Option<&Tensor>,
        options: &ConvTransposeOptions<2>,
    ) -> RusTorchResult<Tensor> {
        prefer_gpu(|| self.conv_transpose2d(weight, bias, options))
    }
}

/// Pooling of images on a GPU, if there is one.
pub trait GpuPooling {
    /// [`Tensor::max_pool2d`].
    ///
    /// # Errors
    /// The errors of that method.
    fn gpu_max_pool2d(
        &self,
        kernel: [usize; 2],
        options: &MaxPoolOptions<2>,
    ) -> RusTorchResult<Tensor>;

    /// [`Tensor::avg_pool2d`].
    ///
    /// # Errors
    /// The errors of that method.
    fn gpu_avg_pool2d(
        &self,
        kernel: [usize; 2],
        options: &AvgPoolOptions<2>,
    ) -> RusTorchResult<Tensor>;
}

#[track_calls]
impl GpuPooling for Tensor {
    fn gpu_max_pool2d(
        &self,
        kernel: [usize; 2],
        options: &MaxPoolOptions<2>,
    ) -> RusTorchResult<Tensor> {
        prefer_gpu(|| self.max_pool2d(kernel, options))
    }

    fn gpu_avg_pool2d(
        &self,
        kernel: [usize; 2],
        options: &AvgPoolOptions<2>,
    ) -> RusTorchResult<Tensor> {
        prefer_gpu(|| self.avg_pool2d(kernel, options))
    }
}

/// Elementwise functions on a GPU, if there is one.
pub trait GpuParallelOp {
    /// A function of two tensors that broadcast.
    ///
    /// # Errors
    /// The same errors as the method of [`Tensor`].
    fn gpu_elementwise_op(&self, op: ElementwiseOp, other: &Tensor) -> RusTorchResult<Tensor>;
}

#[track_calls]
impl GpuParallelOp for Tensor {
    fn gpu_elementwise_op(&self, op: ElementwiseOp, other: &Tensor) -> RusTorchResult<Tensor> {
        prefer_gpu(|| match op {
            ElementwiseOp::Add => self.add(other),
            ElementwiseOp::Sub => self.sub(other),
            ElementwiseOp::Mul => self.mul(other),
            ElementwiseOp::Div => self.div(other),
            ElementwiseOp::Pow => self.pow(other),
            ElementwiseOp::Maximum => self.maximum(other),
            ElementwiseOp::Minimum => self.minimum(other),
        })
    }
}

/// Functions of batches that prefer a GPU; [`GpuConvolution`] has the convolution of a batch.
pub trait GpuBatchParallelOp: GpuConvolution {
    /// [`Tensor::batch_norm`].
    ///
    /// # Errors
    /// The errors of that method.
    fn gpu_batch_norm(
        &self,
        mean: Option<&Tensor>,
        var: Option<&Tensor>,
        options: &BatchNormOptions,
    ) -> RusTorchResult<Tensor>;

    /// [`gpu_attention`] for each member of a batch, with these queries.
    ///
    /// # Errors
    /// The errors of that method.
    fn gpu_batch_attention(
        &self,
        k: &Tensor,
        v: &Tensor,
        options: AttentionOptions,
    ) -> RusTorchResult<Tensor>;
}

#[track_calls]
impl GpuBatchParallelOp for Tensor {
    fn gpu_batch_norm(
        &self,
        mean: Option<&Tensor>,
        var: Option<&Tensor>,
        options: &BatchNormOptions,
    ) -> RusTorchResult<Tensor> {
        prefer_gpu(|| self.batch_norm(mean, var, options))
    }

    fn gpu_batch_attention(
        &self,
        k: &Tensor,
        v: &Tensor,
        options: AttentionOptions,
    ) -> RusTorchResult<Tensor> {
        gpu_attention(self, k, v, options)
    }
}

/// Functions of complex tensors, which run on a GPU and never on Core ML.
pub trait ComplexOperations {
    /// The product of complex tensors that broadcast.
    ///
    /// # Errors
    /// Fails if the tensor is not complex. Also the errors of [`Tensor::mul`].
    fn complex_multiply(&self, other: &Tensor) -> RusTorchResult<Tensor>;

    /// The conjugate of each element.
    ///
    /// # Errors
    /// Fails if the tensor is not complex.
    fn complex_conjugate(&self) -> RusTorchResult<Tensor>;
}

#[track_calls]
impl ComplexOperations for Tensor {
    fn complex_multiply(&self, other: &Tensor) -> RusTorchResult<Tensor> {
        require_complex("complex_multiply", self)?;
        prefer_gpu(|| self.mul(other))
    }

    fn complex_conjugate(&self) -> RusTorchResult<Tensor> {
        require_complex("complex_conjugate", self)?;
        prefer_gpu(|| self.conj())
    }
}

fn require_complex(op: &'static str, x: &Tensor) -> RusTorchResult<()> {
    require(op, x.dtype().is_complex(), "complex numbers", x.ty())
}

/// One function for each line: that of [`GpuParallelOp`].
macro_rules! elementwise {
    ($($name:ident = $op:ident;)*) => {
        $(#[doc = concat!("[`ElementwiseOp::", stringify!($op), "`] of tensors that broadcast, on a GPU if there is one.")]
        ///
        /// # Errors
        /// The same errors as the method of [`Tensor`].
        #[track_calls]
        pub fn $name(a: &Tensor, b: &Tensor) -> RusTorchResult<Tensor> {
            a.gpu_elementwise_op(ElementwiseOp::$op, b)
        })*
    };
}

elementwise! {
    gpu_elementwise_add = Add;
    gpu_elementwise_sub = Sub;
    gpu_elementwise_mul = Mul;
    gpu_elementwise_div = Div;
}

/// [`Tensor::relu`], on a GPU if there is one.
///
/// # Errors
/// The errors of that method.
#[track_calls]
pub fn gpu_relu(x: &Tensor) -> RusTorchResult<Tensor> {
    prefer_gpu(|| x.relu())
}

/// [`Tensor::gelu`], on a GPU if there is one.
///
/// # Errors
/// The errors of that method.
#[track_calls]
pub fn gpu_gelu(x: &Tensor) -> RusTorchResult<Tensor> {
    prefer_gpu(|| x.gelu())
}

/// [`Tensor::softmax`], on a GPU if there is one.
///
/// # Errors
/// The errors of that method.
#[track_calls]
pub fn gpu_softmax(x: &Tensor, dim: isize) -> RusTorchResult<Tensor> {
    prefer_gpu(|| x.softmax(dim))
}

/// A reduction along one dimension, which is dropped, or over all, on a GPU if there is one.
///
/// # Errors
/// The same errors as the method of [`Tensor`].
#[track_calls]
pub fn gpu_reduce(x: &Tensor, op: ReductionOp, dim: Option<usize>) -> RusTorchResult<Tensor> {
    x.gpu_reduce(op, dim)
}

/// [`Tensor::scaled_dot_product_attention`], on a GPU if there is one.
///
/// # Errors
/// The errors of that method.
#[track_calls]
pub fn gpu_attention(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    options: AttentionOptions,
) -> RusTorchResult<Tensor> {
    prefer_gpu(|| q.scaled_dot_product_attention(k, v, options))
}
