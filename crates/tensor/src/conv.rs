//! Convolution and pooling of images `[n, c, h, w]`. Pairs are (height, width).

use rustorch_ir::ops::{Conv2d, ConvTranspose2d, Pool2d, PoolKind};

use crate::Tensor;
use crate::error::RusTorchResult;

impl Tensor {
    /// 2-D convolution of `self` `[n, c, h, w]` with `weight` `[o, c / groups, kh, kw]` and
    /// `bias` `[o]`: `[n, o, h', w']`. Floats of one dtype. [`Conv2d`] says what the
    /// parameters mean; its default is stride 1 without padding.
    ///
    /// # Errors
    /// Shapes or dtypes other than these; a window that does not fit.
    pub fn conv2d(
        &self,
        weight: &Self,
        bias: Option<&Self>,
        parameters: &Conv2d,
    ) -> RusTorchResult<Self> {
        let inputs: Vec<&Self> = [self, weight].into_iter().chain(bias).collect();
        Self::apply("conv2d", parameters.clone(), &inputs)
    }

    /// Transposed 2-D convolution of `self` `[n, c, h, w]` with `weight`
    /// `[c, o / groups, kh, kw]` and `bias` `[o]`: `[n, o, h', w']`. Floats of one dtype.
    ///
    /// # Errors
    /// Shapes or dtypes other than these; a result without elements.
    pub fn conv_transpose2d(
        &self,
        weight: &Self,
        bias: Option<&Self>,
        parameters: &ConvTranspose2d,
    ) -> RusTorchResult<Self> {
        let inputs: Vec<&Self> = [self, weight].into_iter().chain(bias).collect();
        Self::apply("conv_transpose2d", parameters.clone(), &inputs)
    }

    /// The largest element of each window of `kernel` elements of `self` `[n, c, h, w]`,
    /// floats. PyTorch's default stride is `kernel`.
    ///
    /// # Errors
    /// Another shape or dtype; a window that does not fit; padding above half the kernel.
    pub fn max_pool2d(
        &self,
        kernel: [usize; 2],
        stride: [usize; 2],
        padding: [usize; 2],
        dilation: [usize; 2],
    ) -> RusTorchResult<Self> {
        let pool = max_pool([kernel, stride, padding, dilation], false);
        Self::apply("max_pool2d", pool, &[self])
    }

    /// [`Tensor::max_pool2d`], and where in its plane `[h, w]` of `self` each largest element is
    /// (`row · w + column`, `i64`): the first one of equals, the last NaN. PyTorch's
    /// `max_pool2d` with `return_indices`.
    ///
    /// # Errors
    /// As [`Tensor::max_pool2d`].
    pub fn max_pool2d_with_indices(
        &self,
        kernel: [usize; 2],
        stride: [usize; 2],
        padding: [usize; 2],
        dilation: [usize; 2],
    ) -> RusTorchResult<(Self, Self)> {
        let pool = max_pool([kernel, stride, padding, dilation], true);
        let [values, indices] = Self::apply_all("max_pool2d_with_indices", pool, &[self])?;
        Ok((values, indices))
    }

    /// The mean of each window of `kernel` elements of `self` `[n, c, h, w]`, floats; padding
    /// counts as zeros. PyTorch's default stride is `kernel`.
    ///
    /// # Errors
    /// As [`Tensor::max_pool2d`].
    pub fn avg_pool2d(
        &self,
        kernel: [usize; 2],
        stride: [usize; 2],
        padding: [usize; 2],
    ) -> RusTorchResult<Self> {
        let pool = Pool2d {
            kind: PoolKind::Average,
            kernel,
            stride,
            padding,
            dilation: [1; 2],
            indices: false,
        };
        Self::apply("avg_pool2d", pool, &[self])
    }
}

fn max_pool([kernel, stride, padding, dilation]: [[usize; 2]; 4], indices: bool) -> Pool2d {
    Pool2d {
        kind: PoolKind::Max,
        kernel,
        stride,
        padding,
        dilation,
        indices,
    }
}
