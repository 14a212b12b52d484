//! Pooling.

use rustorch_macros::track_calls;
use rustorch_tensor::nn::{AvgPoolOptions, FractionalSize, MaxPoolOptions};
use rustorch_tensor::{OutputSize, PerDim, RusTorchResult, Tensor};

use super::{Buffer, Forward, Module};

/// The modules for a number of dimensions: their names, and the tensor's methods.
macro_rules! pools {
    ($($n:literal: $MaxPool:ident $max:ident $max_indices:ident, $MaxUnpool:ident $unpool:ident,
        $AvgPool:ident $avg:ident, $LPPool:ident $norm:ident,
        $AdaptiveMaxPool:ident $adaptive_max:ident $adaptive_indices:ident,
        $AdaptiveAvgPool:ident $adaptive_avg:ident;)*) => {
        $(
            #[doc = concat!("[`Tensor::", stringify!($max), "`].")]
            #[derive(Debug, Module)]
            pub struct $MaxPool {
                /// Sizes of the windows.
                #[module(skip)]
                pub kernel_size: [usize; $n],
                /// Stride, padding, dilation.
                #[module(skip)]
                pub options: MaxPoolOptions<$n>,
            }

            #[track_calls($MaxPool)]
            impl $MaxPool {
                /// A pool with windows of a size.
                pub fn new(kernel_size: impl PerDim<$n>, options: MaxPoolOptions<$n>) -> Self {
                    Self { kernel_size: kernel_size.per_dim(), options }
                }

                /// The result of [`Forward::forward`], and the index of each element, for
                /// unpooling.
                ///
                /// # Errors
                #[doc = concat!("The same errors as [`Tensor::", stringify!($max), "`].")]
                pub fn forward_with_indices(&self, x: &Tensor) -> RusTorchResult<(Tensor, Tensor)> {
                    x.$max_indices(self.kernel_size, &self.options)
                }
            }

            #[track_calls($MaxPool)]
            impl Forward for $MaxPool {
                fn forward(&self, x: &Tensor) -> RusTorchResult<Tensor> {
                    x.$max(self.kernel_size, &self.options)
                }
            }

            #[doc = concat!("[`Tensor::", stringify!($unpool), "`].")]
            #[derive(Debug, Module)]
            pub struct $MaxUnpool {
                /// Sizes of the windows.
                #[module(skip)]
                pub kernel_size: [usize; $n],
                /// Stride and padding.
                #[module(skip)]
                pub options: MaxPoolOptions<$n>,
            }

            #[track_calls($MaxUnpool)]
            impl $MaxUnpool {
                /// A pool with windows of a size.
                pub fn new(kernel_size: impl PerDim<$n>, options: MaxPoolOptions<$n>) -> Self {
                    Self { kernel_size: kernel_size.per_dim(), options }
                }

                /// Elements at the indices from the pooling, in a tensor of `output_size`, or of
                /// the smallest size that fits.
                ///
                /// # Errors
                #[doc = concat!("The same errors as [`Tensor::", stringify!($unpool), "`].")]
                pub fn forward(
                    &self,
                    x: &Tensor,
                    indices: &Tensor,
                    output_size: Option<[usize; $n]>,
                ) -> RusTorchResult<Tensor> {
                    x.$unpool(indices, self.kernel_size, &self.options, output_size)
                }
            }

            #[doc = concat!("[`Tensor::", stringify!($avg), "`].")]
            #[derive(Debug, Module)]
            pub struct $AvgPool {
                /// Sizes of the windows.
                #[module(skip)]
                pub kernel_size: [usize; $n],
                /// Stride, padding, and whether padding counts.
                #[module(skip)]
                pub options: AvgPoolOptions<$n>,
            }

            impl $AvgPool {
                /// A pool with windows of a size.
                pub fn new(kernel_size: impl PerDim<$n>, options: AvgPoolOptions<$n>) -> Self {
                    Self { kernel_size: kernel_size.per_dim(), options }
                }
            }

            #[track_calls($AvgPool)]
            impl Forward for $AvgPool {
                fn forward(&self, x: &Tensor) -> RusTorchResult<Tensor> {
                    x.$avg(self.kernel_size, &self.options)
                }
            }

            #[doc = concat!("[`Tensor::", stringify!($norm), "`].")]
            #[derive(Debug, Module)]
            pub struct $LPPool {
                /// The order of the norm.
                #[module(skip)]
                pub norm_type: f64,
                /// Sizes of the windows.
                #[module(skip)]
                pub kernel_size: [usize; $n],
                /// Distance between windows; `None`: their size.
                #[module(skip)]
                pub stride: Option<[usize; $n]>,
                /// Allows the last window to exceed the end.
                #[module(skip)]
                pub ceil_mode: bool,
            }

            impl $LPPool {
                /// A norm over windows of this size, without overlap.
                pub fn new(norm_type: f64, kernel_size: impl PerDim<$n>) -> Self {
                    let kernel_size = kernel_size.per_dim();
                    Self { norm_type, kernel_size, stride: None, ceil_mode: false }
                }

                /// Sets the distance between windows.
                #[must_use]
                pub fn stride(mut self, stride: impl PerDim<$n>) -> Self {
                    self.stride = Some(stride.per_dim());
                    self
                }

                super::layers::setters!(ceil_mode: bool;);
            }

            #[track_calls($LPPool)]
            impl Forward for $LPPool {
                fn forward(&self, x: &Tensor) -> RusTorchResult<Tensor> {
                    x.$norm(self.norm_type, self.kernel_size, self.stride, self.ceil_mode)
                }
            }

            #[doc = concat!("[`Tensor::", stringify!($adaptive_max), "`].")]
            #[derive(Debug, Module)]
            pub struct $AdaptiveMaxPool {
                /// Number of windows along each dimension; `None`: the dimension's size.
                #[module(skip)]
                pub output_size: [Option<usize>; $n],
            }

            #[track_calls($AdaptiveMaxPool)]
            impl $AdaptiveMaxPool {
                /// A pool with this number of windows.
                pub fn new(output_size: impl OutputSize<$n>) -> Self {
                    Self { output_size: output_size.output_size() }
                }

                /// The result of [`Forward::forward`], and the index of each element.
                ///
                /// # Errors
                #[doc = concat!("The same errors as [`Tensor::", stringify!($adaptive_max), "`].")]
                pub fn forward_with_indices(&self, x: &Tensor) -> RusTorchResult<(Tensor, Tensor)> {
                    x.$adaptive_indices(self.output_size)
                }
            }

            #[track_calls($AdaptiveMaxPool)]
            impl Forward for $AdaptiveMaxPool {
                fn forward(&self, x: &Tensor) -> RusTorchResult<Tensor> {
                    x.$adaptive_max(self.output_size)
                }
            }

            #[doc = concat!("[`Tensor::", stringify!($adaptive_avg), "`].")]
            #[derive(Debug, Module)]
            pub struct $AdaptiveAvgPool {
                /// Number of windows along each dimension; `None`: the dimension's size.
                #[module(skip)]
                pub output_size: [Option<usize>; $n],
            }

            impl $AdaptiveAvgPool {
                /// A pool with this number of windows.
                pub fn new(output_size: impl OutputSize<$n>) -> Self {
                    Self { output_size: output_size.output_size() }
                }
            }

            #[track_calls($AdaptiveAvgPool)]
            impl Forward for $AdaptiveAvgPool {
                fn forward(&self, x: &Tensor) -> RusTorchResult<Tensor> {
                    x.$adaptive_avg(self.output_size)
                }
            }
        )*
    };
}

pools! {
    1: MaxPool1d max_pool1d max_pool1d_with_indices, MaxUnpool1d max_unpool1d, AvgPool1d avg_pool1d, LPPool1d lp_pool1d,
        AdaptiveMaxPool1d adaptive_max_pool1d adaptive_max_pool1d_with_indices, AdaptiveAvgPool1d adaptive_avg_pool1d;
    2: MaxPool2d max_pool2d max_pool2d_with_indices, MaxUnpool2d max_unpool2d, AvgPool2d avg_pool2d, LPPool2d lp_pool2d,
        AdaptiveMaxPool2d adaptive_max_pool2d adaptive_max_pool2d_with_indices, AdaptiveAvgPool2d adaptive_avg_pool2d;
    3: MaxPool3d max_pool3d max_pool3d_with_indices, MaxUnpool3d max_unpool3d, AvgPool3d avg_pool3d, LPPool3d lp_pool3d,
        AdaptiveMaxPool3d adaptive_max_pool3d adaptive_max_pool3d_with_indices, AdaptiveAvgPool3d adaptive_avg_pool3d;
}

/// One module for each line: its name, number of dimensions, the tensor's method.
macro_rules! fractional_pools {
    ($($FractionalMaxPool:ident = $n:literal, $method:ident;)*) => {
        $(
            #[doc = concat!("[`Tensor::", stringify!($method), "`].")]
            #[derive(Module)]
            pub struct $FractionalMaxPool {
                /// Sizes of the windows.
                #[module(skip)]
                pub kernel_size: [usize; $n],
                /// Number of windows.
                #[module(skip)]
                pub size: FractionalSize<$n>,
                /// PyTorch's name for the buffer.
                _random_samples: Option<Buffer>,
            }

            #[track_calls($FractionalMaxPool)]
            impl $FractionalMaxPool {
                /// A pool with windows of a size.
                pub fn new(kernel_size: impl PerDim<$n>, size: FractionalSize<$n>) -> Self {
                    Self { kernel_size: kernel_size.per_dim(), size, _random_samples: None }
                }

                /// Sets random samples for the windows, as in the method; the tensor is a buffer.
                #[must_use]
                pub fn random_samples(mut self, random_samples: impl Into<Option<Tensor>>) -> Self {
                    self._random_samples = random_samples.into().map(Buffer::new);
                    self
                }

                /// The result of [`Forward::forward`], and the index of each element.
                ///
                /// # Errors
                #[doc = concat!("The same errors as [`Tensor::", stringify!($method), "`].")]
                pub fn forward_with_indices(&self, x: &Tensor) -> RusTorchResult<(Tensor, Tensor)> {
                    let samples = self._random_samples.as_ref().map(Buffer::get);
                    x.$method(self.kernel_size, self.size, samples.as_ref())
                }
            }

            #[track_calls($FractionalMaxPool)]
            impl Forward for $FractionalMaxPool {
                fn forward(&self, x: &Tensor) -> RusTorchResult<Tensor> {
                    Ok(self.forward_with_indices(x)?.0)
                }
            }
        )*
    };
}

fractional_pools! {
    FractionalMaxPool2d = 2, fractional_max_pool2d;
    FractionalMaxPool3d = 3, fractional_max_pool3d;
}
