//! Convolutions and transposed convolutions of 1, 2 and 3 dimensions.

use rustorch_macros::track_calls;
use rustorch_tensor::nn::{ConvOptions, ConvPadding, ConvTransposeOptions};
use rustorch_tensor::{PadMode, PerDim, RusTorchResult, Tensor};

use super::linear::{bound_of, uniform};
use super::{Forward, Module};
use crate::error::require;

/// The shape of a weight whose first two dimensions are channels, the second by groups.
fn weight_shape<const N: usize>(
    name: &'static str,
    channels: [usize; 2],
    of: [usize; 2],
    groups: usize,
    kernel: [usize; N],
) -> RusTorchResult<Vec<usize>> {
    let divides = groups > 0 && channels.iter().all(|c| c.is_multiple_of(groups));
    let expected = "channels that the number of groups divides";
    require(
        name,
        divides,
        expected,
        format_args!("{channels:?} in {groups} groups"),
    )?;
    Ok([&[of[0], of[1] / groups], &kernel[..]].concat())
}

/// Two modules for each line: their names, the number of dimensions, the tensor's methods.
macro_rules! convolutions {
    ($($Conv:ident $ConvTranspose:ident = $n:literal, $conv:ident, $transposed:ident;)*) => {
        $(
            #[doc = concat!("[`Tensor::", stringify!($conv), "`] with a weight and bias of its own.")]
            #[derive(Module)]
            pub struct $Conv {
                /// `[out_channels, in_channels / groups, kernel…]`.
                pub weight: Tensor,
                /// `[out_channels]`.
                pub bias: Option<Tensor>,
                /// Stride, padding, dilation, groups.
                #[module(skip)]
                pub options: ConvOptions<$n>,
                /// Padding mode of `x`.
                #[module(skip)]
                pub padding_mode: PadMode,
            }

            #[track_calls($Conv)]
            impl $Conv {
                /// A layer with a bias and zero padding. Weights and biases are uniform in `±1 / √n`, where `n` is the
                /// number of inputs of each result.
                ///
                /// # Errors
                /// Fails for channels that the number of groups does not divide, or sizes too large
                /// for memory.
                pub fn new(
                    in_channels: usize,
                    out_channels: usize,
                    kernel_size: impl PerDim<$n>,
                    options: ConvOptions<$n>,
                ) -> RusTorchResult<Self> {
                    let (channels, of) = ([in_channels, out_channels], [out_channels, in_channels]);
                    let (name, kernel) = (stringify!($Conv), kernel_size.per_dim());
                    let shape = weight_shape(name, channels, of, options.groups, kernel)?;
                    let bound = bound_of(shape[1..].iter().product());
                    Ok(Self {
                        weight: uniform(shape, bound)?,
                        bias: Some(uniform(out_channels, bound)?),
                        options,
                        padding_mode: PadMode::from(0.0),
                    })
                }

                /// The same without a bias.
                #[must_use]
                pub fn without_bias(mut self) -> Self {
                    self.bias = None;
                    self
                }

                /// Sets the padding mode.
                #[must_use]
                pub fn padding_mode(mut self, padding_mode: impl Into<PadMode>) -> Self {
                    self.padding_mode = padding_mode.into();
                    self
                }
            }

            #[track_calls($Conv)]
            impl Forward for $Conv {
                fn forward(&self, x: &Tensor) -> RusTorchResult<Tensor> {
                    if matches!(self.padding_mode, PadMode::Constant(value) if value.as_f64() == 0.0) {
                        return x.$conv(&self.weight, self.bias.as_ref(), &self.options);
                    }
                    let kernel = &self.weight.shape()[2..];
                    let around = paddings(self.options.padding, kernel, &self.options.dilation);
                    let padded = x.pad(around, self.padding_mode)?;
                    let options = self.options.padding(ConvPadding::Valid);
                    padded.$conv(&self.weight, self.bias.as_ref(), &options)
                }
            }

            #[doc = concat!("[`Tensor::", stringify!($transposed), "`] with a weight and bias of its own.")]
            #[derive(Module)]
            pub struct $ConvTranspose {
                /// `[in_channels, out_channels / groups, kernel…]`.
                pub weight: Tensor,
                /// `[out_channels]`.
                pub bias: Option<Tensor>,
                /// Stride, padding, dilation, groups.
                #[module(skip)]
                pub options: ConvTransposeOptions<$n>,
            }

            #[track_calls($ConvTranspose)]
            impl $ConvTranspose {
                #[doc = concat!("Drawn as [`", stringify!($Conv), "`]'s, by the weight's second dimension.")]
                ///
                /// # Errors
                /// Fails for channels that the number of groups does not divide, or sizes too large
                /// for memory.
                pub fn new(
                    in_channels: usize,
                    out_channels: usize,
                    kernel_size: impl PerDim<$n>,
                    options: ConvTransposeOptions<$n>,
                ) -> RusTorchResult<Self> {
                    let channels = [in_channels, out_channels];
                    let (name, kernel) = (stringify!($ConvTranspose), kernel_size.per_dim());
                    let shape = weight_shape(name, channels, channels, options.groups, kernel)?;
                    let bound = bound_of(shape[1..].iter().product());
                    Ok(Self {
                        weight: uniform(shape, bound)?,
                        bias: Some(uniform(out_channels, bound)?),
                        options,
                    })
                }

                /// The same without a bias.
                #[must_use]
                pub fn without_bias(mut self) -> Self {
                    self.bias = None;
                    self
                }
            }

            #[track_calls($ConvTranspose)]
            impl Forward for $ConvTranspose {
                fn forward(&self, x: &Tensor) -> RusTorchResult<Tensor> {
                    x.$transposed(&self.weight, self.bias.as_ref(), &self.options)
                }
            }
        )*
    };
}

convolutions! {
    Conv1d ConvTranspose1d = 1, conv1d, conv_transpose1d;
    Conv2d ConvTranspose2d = 2, conv2d, conv_transpose2d;
    Conv3d ConvTranspose3d = 3, conv3d, conv_transpose3d;
}

/// Before and after each dimension, the last one first.
fn paddings<const N: usize>(
    padding: ConvPadding<N>,
    kernel: &[usize],
    dilation: &[usize; N],
) -> Vec<usize> {
    let pair = |i: usize| match padding {
        ConvPadding::Each(each) => [each[i], each[i]],
        ConvPadding::Valid => [0, 0],
        ConvPadding::Same => {
            let total = dilation[i] * kernel[i].saturating_sub(1);
            [total / 2, total - total / 2]
        }
    };
    (0..N).rev().flat_map(pair).collect()
}
