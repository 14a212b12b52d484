//! An index of options: the structure that each call takes. `default()` gives PyTorch's defaults,
//! and each option has a method.
//!
//! ```
//! use rustorch::options::{ConvOptions, CrossEntropyOptions};
//!
//! let convolution = ConvOptions::<2>::default().stride(2).padding(1);
//! assert_eq!(convolution.stride, [2, 2]);
//! assert_eq!(CrossEntropyOptions::default().ignore_index, -100);
//! ```
//!
//! | call | options |
//! | --- | --- |
//! | [`Tensor::conv1d`](crate::Tensor::conv1d), [`conv2d`](crate::Tensor::conv2d), [`conv3d`](crate::Tensor::conv3d), `nn::Conv2d` and its variants | [`ConvOptions`] |
//! | [`Tensor::conv_transpose2d`](crate::Tensor::conv_transpose2d) and its variants, `nn::ConvTranspose2d` and its variants | [`ConvTransposeOptions`] |
//! | [`Tensor::max_pool2d`](crate::Tensor::max_pool2d) and its variants, `nn::MaxPool2d` and its variants | [`MaxPoolOptions`] |
//! | [`Tensor::avg_pool2d`](crate::Tensor::avg_pool2d) and its variants, `nn::AvgPool2d` and its variants | [`AvgPoolOptions`] |
//! | [`Tensor::interpolate`](crate::Tensor::interpolate) | [`InterpolateOptions`] |
//! | [`Tensor::grid_sample`](crate::Tensor::grid_sample) | [`GridSampleOptions`] |
//! | [`Tensor::batch_norm`](crate::Tensor::batch_norm) | [`BatchNormOptions`] |
//! | [`Tensor::embedding_bag`](crate::Tensor::embedding_bag) | [`EmbeddingBagOptions`] |
//! | [`Tensor::scaled_dot_product_attention`](crate::Tensor::scaled_dot_product_attention) | [`AttentionOptions`]: PyTorch's `attn_mask` is `mask` |
//! | [`Tensor::multi_head_attention_forward`](crate::Tensor::multi_head_attention_forward) | [`MultiHeadOptions`] |
//! | [`Tensor::cross_entropy`](crate::Tensor::cross_entropy), [`linear_cross_entropy`](crate::Tensor::linear_cross_entropy) | [`CrossEntropyOptions`] |
//! | [`Tensor::ctc_loss`](crate::Tensor::ctc_loss) | [`CtcOptions`] |
//! | [`Tensor::triplet_margin_loss`](crate::Tensor::triplet_margin_loss), `nn::TripletMarginLoss` | [`TripletOptions`] |
//! | [`Tensor::stft`](crate::Tensor::stft), [`istft`](crate::Tensor::istft) | [`Stft`] |
//! | [`vision::roi_align`](crate::vision::roi_align), [`vision::deform_conv2d`](crate::vision::deform_conv2d) | [`RoiAlignOptions`], [`DeformConvOptions`] |
//! | [`Tensor::backward_with`](crate::Tensor::backward_with), [`autograd::grad_with`](crate::autograd::grad_with) | [`GradOptions`] |
//! | [`discover`](crate::discover) | [`DeviceOptions`] |
//! | `nn::RNN`, `nn::LSTM`, `nn::GRU` | `RNNOptions` |
//! | `nn::MultiheadAttention`, `nn::Transformer` and its layers | `MultiheadAttentionOptions`, `TransformerOptions` |
//! | `optim::SGD`, `optim::AdamW` and the other optimisers | their names and `Options`: `SGDOptions`, `AdamWOptions` … |
//! | `data::DataLoader`, `data::read_csv` | `LoaderOptions`, `CsvOptions` |

pub use rustorch_tensor::fft::Stft;
pub use rustorch_tensor::nn::{
    AttentionOptions, AvgPoolOptions, BatchNormOptions, ConvOptions, ConvTransposeOptions,
    CrossEntropyOptions, CtcOptions, EmbeddingBagOptions, GridSampleOptions, InterpolateOptions,
    MaxPoolOptions, MultiHeadOptions, TripletOptions,
};
pub use rustorch_tensor::vision::{DeformConvOptions, RoiAlignOptions};
pub use rustorch_tensor::{DeviceOptions, GradOptions};

#[cfg(all(feature = "data", feature = "csv"))]
pub use rustorch_data::CsvOptions;
#[cfg(feature = "data")]
pub use rustorch_data::LoaderOptions;
#[cfg(feature = "nn")]
pub use rustorch_nn::nn::{MultiheadAttentionOptions, RNNOptions, TransformerOptions};
#[cfg(feature = "nn")]
pub use rustorch_nn::optim::{
    ASGDOptions, AdadeltaOptions, AdafactorOptions, AdagradOptions, AdamOptions, AdamWOptions,
    AdamaxOptions, LBFGSOptions, MuonOptions, NAdamOptions, RAdamOptions, RMSpropOptions,
    RpropOptions, SGDOptions, SparseAdamOptions,
};
