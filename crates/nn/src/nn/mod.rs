//! Layers, losses and initialisers: `torch.nn`, with the options of `torch.nn.functional`.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `module.rs` | the traits [`Visit`], [`Module`](trait@Module) and [`Forward`], state dictionaries |
//! | `containers.rs` | [`Sequential`], lists and dictionaries |
//! | `copies.rs` | clones of modules, and handles on them |
//! | `hooks.rs` | [`Hooked`]: functions called before and after `forward` |
//! | `layers.rs` | macros of small modules |
//! | `linear.rs`, `convolution.rs`, `embedding.rs` | layers with weights |
//! | `lazy.rs` | layers that find their shapes |
//! | `normalization.rs`, `dropout.rs` | layers that differ between training and inference |
//! | `activation.rs`, `pooling.rs`, `padding.rs`, `shape.rs` | layers without weights |
//! | `recurrent.rs`, `transformer.rs` | networks of sequences |
//! | `loss.rs`, `adaptive.rs` | losses |
//! | `clip_grad.rs`, `parametrize.rs` | gradients kept small, weights that follow from others |
//! | `init.rs` | initialisers |
//! | `utils.rs`, `vectors.rs`, `sequences.rs` | `torch.nn.utils` |

mod activation;
mod adaptive;
mod clip_grad;
mod containers;
mod convolution;
mod copies;
mod dropout;
mod embedding;
mod hooks;
pub mod init;
mod layers;
mod lazy;
mod linear;
mod loss;
mod module;
mod normalization;
mod padding;
mod parametrize;
mod pooling;
mod recurrent;
mod sequences;
mod shape;
mod transformer;
pub mod utils;
mod vectors;

pub use activation::{
    CELU, ELU, GELU, GLU, GeluApproximate, Hardshrink, Hardsigmoid, Hardswish, Hardtanh, LeakyReLU,
    LogSigmoid, LogSoftmax, Mish, PReLU, RReLU, ReLU, ReLU6, SELU, SiLU, Sigmoid, Softmax,
    Softmax2d, Softmin, Softplus, Softshrink, Softsign, Tanh, Tanhshrink, Threshold,
};
pub use adaptive::AdaptiveLogSoftmaxWithLoss;
pub(crate) use clip_grad::scaled;
pub use clip_grad::{clip_grad_norm_, clip_grad_value_, get_total_norm};
pub use containers::{
    Layer, ModuleDict, ModuleList, ParameterDict, ParameterList, Part, Place, Sequential,
    sequential,
};
pub use convolution::{Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d};
pub(crate) use copies::copied;
#[doc(hidden)]
pub use copies::derive_module_writes_clone_so_remove_clone_from_your_derives;
pub use copies::{cloned, cloned_apart, deep_copy, share};
pub use dropout::{AlphaDropout, Dropout, Dropout1d, Dropout2d, Dropout3d, FeatureAlphaDropout};
pub use embedding::{Embedding, EmbeddingBag};
pub use hooks::{Hooked, RemovableHandle};
pub use lazy::{
    Lazy, LazyBatchNorm1d, LazyBatchNorm2d, LazyBatchNorm3d, LazyConv1d, LazyConv2d, LazyConv3d,
    LazyConvTranspose1d, LazyConvTranspose2d, LazyConvTranspose3d, LazyInstanceNorm1d,
    LazyInstanceNorm2d, LazyInstanceNorm3d, LazyLinear,
};
pub use linear::{Bilinear, Identity, Linear};
pub use loss::{
    BCELoss, BCEWithLogitsLoss, CTCLoss, CosineEmbeddingLoss, CrossEntropyLoss, GaussianNLLLoss,
    HingeEmbeddingLoss, HuberLoss, KLDivLoss, KLDivReduction, L1Loss, LinearCrossEntropyLoss,
    MSELoss, MarginRankingLoss, MultiLabelMarginLoss, MultiLabelSoftMarginLoss, MultiMarginLoss,
    NLLLoss, PoissonNLLLoss, SmoothL1Loss, SoftMarginLoss, TripletMarginLoss,
    TripletMarginWithDistanceLoss,
};
pub(crate) use module::ParameterId;
pub use module::{
    Buffer, Forward, Leaf, LeafMut, Module, Training, Unmatched, Visit, join_names, parameter,
};
pub use normalization::{
    BatchNorm1d, BatchNorm2d, BatchNorm3d, GroupNorm, InstanceNorm1d, InstanceNorm2d,
    InstanceNorm3d, LayerNorm, LocalResponseNorm, RMSNorm, RunningStats,
};
pub use padding::{
    CircularPad1d, CircularPad2d, CircularPad3d, ConstantPad1d, ConstantPad2d, ConstantPad3d,
    Paddings, ReflectionPad1d, ReflectionPad2d, ReflectionPad3d, ReplicationPad1d,
    ReplicationPad2d, ReplicationPad3d, ZeroPad1d, ZeroPad2d, ZeroPad3d,
};
pub use parametrize::{SpectralNorm, WeightNorm, Weighted, spectral_norm, weight_norm};
pub use pooling::{
    AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d, AdaptiveMaxPool1d, AdaptiveMaxPool2d,
    AdaptiveMaxPool3d, AvgPool1d, AvgPool2d, AvgPool3d, FractionalMaxPool2d, FractionalMaxPool3d,
    LPPool1d, LPPool2d, LPPool3d, MaxPool1d, MaxPool2d, MaxPool3d, MaxUnpool1d, MaxUnpool2d,
    MaxUnpool3d,
};
pub use recurrent::{GRU, GRUCell, LSTM, LSTMCell, RNN, RNNCell, RNNNonlinearity, RNNOptions};
/// Derives [`Module`](trait@Module), and a deep `Clone` by the fields' own. So the list of derives has no
/// `Clone`, which would be a second one. If a field is not `Clone`, the module is not, either. A field that
/// is marked `#[module(skip)]` is cloned as it is: a tensor there is a handle on the same memory.
///
/// A name has no point, and two fields have different names. So
/// these do not compile:
///
/// ```compile_fail
/// # extern crate rustorch_nn as rustorch;
/// #[derive(rustorch::nn::Module)]
/// struct Net {
///     #[module(rename = "encoder.layer")]
///     layer: rustorch::nn::Linear,
/// }
/// ```
///
/// ```compile_fail
/// # extern crate rustorch_nn as rustorch;
/// #[derive(rustorch::nn::Module)]
/// struct Net {
///     #[module(rename = "head")]
///     body: rustorch::nn::Linear,
///     head: rustorch::nn::Linear,
/// }
/// ```
///
/// This compiles:
///
/// ```
/// # extern crate rustorch_nn as rustorch;
/// #[derive(rustorch::nn::Module)]
/// struct Net {
///     #[module(rename = "self")]
///     body: rustorch::nn::Linear,
///     head: rustorch::nn::Linear,
/// }
/// ```
pub use rustorch_macros::Module;
/// The options of `torch.nn.functional`'s functions, which are methods of tensors.
pub use rustorch_tensor::nn::*;
pub use shape::{
    ChannelShuffle, CosineSimilarity, Flatten, Fold, PairwiseDistance, PixelShuffle,
    PixelUnshuffle, Unflatten, Unfold, Upsample,
};
pub use transformer::{
    AttentionMasks, MultiheadAttention, MultiheadAttentionOptions, SequenceMasks, Transformer,
    TransformerActivation, TransformerDecoder, TransformerDecoderLayer, TransformerEncoder,
    TransformerEncoderLayer, TransformerOptions,
};
pub use vectors::{parameters_to_vector, vector_to_parameters};
