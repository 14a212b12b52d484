//! Multi-head attention, and transformers: [Vaswani et al.](https://arxiv.org/abs/1706.03762)

use rustorch_ir::DType;
use rustorch_macros::track_calls;
use rustorch_tensor::nn::{MultiHeadOptions, Projections};
use rustorch_tensor::{RusTorchResult, Tensor};

use super::{Dropout, Forward, LayerNorm, Linear, Module, Training, deep_copy, init, parameter};
use crate::error::require;

/// The options of [`MultiheadAttention::new`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MultiheadAttentionOptions {
    /// Dropout probability of the weights, in training.
    pub dropout: f64,
    /// Adds biases to the projections.
    pub bias: bool,
    /// Appends a trained key and value.
    pub add_bias_kv: bool,
    /// Appends a key and a value of zeros.
    pub add_zero_attn: bool,
    /// Size of keys; `None`: the same as queries.
    pub kdim: Option<usize>,
    /// Size of values; `None`: the same as queries.
    pub vdim: Option<usize>,
    /// Puts the batch dimension first.
    pub batch_first: bool,
}

impl Default for MultiheadAttentionOptions {
    fn default() -> Self {
        Self {
            dropout: 0.0,
            bias: true,
            add_bias_kv: false,
            add_zero_attn: false,
            kdim: None,
            vdim: None,
            batch_first: false,
        }
    }
}

impl MultiheadAttentionOptions {
    super::layers::setters!(
        dropout: f64; bias: bool; add_bias_kv: bool; add_zero_attn: bool; kdim: Option<usize>;
        vdim: Option<usize>; batch_first: bool;
    );
}

/// The optional arguments of [`MultiheadAttention::forward`].
#[derive(Clone, Copy)]
pub struct AttentionMasks<'a> {
    /// Padding mask of keys, `[n, s]` or `[s]`. A `bool` mask is true where a key is hidden; floats
    /// are added to the scores.
    pub key_padding_mask: Option<&'a Tensor>,
    /// Attention mask, `[t, s]` or `[n · heads, t, s]`. A `bool` mask is true where a key is
    /// hidden; floats are added to the scores.
    pub attn_mask: Option<&'a Tensor>,
    /// Returns the weights, too.
    pub need_weights: bool,
    /// Averages the weights over the heads.
    pub average_attn_weights: bool,
}

impl<'a> AttentionMasks<'a> {
    super::layers::setters!(
        key_padding_mask: Option<&'a Tensor>; attn_mask: Option<&'a Tensor>; need_weights: bool;
        average_attn_weights: bool;
    );
}

impl Default for AttentionMasks<'_> {
    fn default() -> Self {
        Self {
            key_padding_mask: None,
            attn_mask: None,
            need_weights: true,
            average_attn_weights: true,
        }
    }
}

/// Multi-head attention with projections.
#[derive(Module)]
pub struct MultiheadAttention {
    /// The weight of queries, keys and values, `[3 e, e]`, if all have the size `e`.
    pub in_proj_weight: Option<Tensor>,
    /// Otherwise the weight of queries, `[e, e]`.
    pub q_proj_weight: Option<Tensor>,
    /// Otherwise the weight of keys, `[e, ek]`.
    pub k_proj_weight: Option<Tensor>,
    /// Otherwise the weight of values, `[e, ev]`.
    pub v_proj_weight: Option<Tensor>,
    /// `[3 e]`.
    pub in_proj_bias: Option<Tensor>,
    /// The trained key, `[1, 1, e]`.
    pub bias_k: Option<Tensor>,
    /// The trained value, `[1, 1, e]`.
    pub bias_v: Option<Tensor>,
    /// The output projection.
    pub out_proj: Linear,
    /// Enables dropout of the weights.
    pub training: Training,
    #[module(skip)]
    num_heads: usize,
    #[module(skip)]
    options: MultiheadAttentionOptions,
}

#[track_calls(MultiheadAttention)]
impl MultiheadAttention {
    /// Multi-head attention with `num_heads` heads that share `embed_dim`. Projections begin with
    /// [`init::xavier_uniform_`], biases with 0.
    ///
    /// # Errors
    /// Fails for a number of heads that does not divide the size, or for sizes too large for
    /// memory.
    pub fn new(
        embed_dim: usize,
        num_heads: usize,
        options: MultiheadAttentionOptions,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "MultiheadAttention";
        let divides = num_heads > 0 && embed_dim.is_multiple_of(num_heads) && embed_dim > 0;
        require(
            NAME,
            divides,
            format_args!("heads that divide {embed_dim}"),
            num_heads,
        )?;
        let dropout = options.dropout;
        require(
            NAME,
            (0.0..=1.0).contains(&dropout),
            "a probability of 0 to 1",
            dropout,
        )?;
        let drawn = |shape: [usize; 2]| {
            let mut weight = parameter(Tensor::zeros(shape, DType::F32)?)?;
            init::xavier_uniform_(&mut weight, 1.0)?;
            RusTorchResult::Ok(weight)
        };
        let (key, value) = (
            options.kdim.unwrap_or(embed_dim),
            options.vdim.unwrap_or(embed_dim),
        );
        let is_packed = key == embed_dim && value == embed_dim;
        let packed = |is: bool, shape| is.then(|| drawn(shape)).transpose();
        let behind = || -> RusTorchResult<Option<Tensor>> {
            if !options.add_bias_kv {
                return Ok(None);
            }
            let mut weight = parameter(Tensor::zeros([1, 1, embed_dim], DType::F32)?)?;
            init::xavier_normal_(&mut weight, 1.0)?;
            Ok(Some(weight))
        };
        let mut out_proj = Linear::new(embed_dim, embed_dim)?;
        let zeros = |size: usize| parameter(Tensor::zeros(size, DType::F32)?);
        let bias = |size| options.bias.then(|| zeros(size)).transpose();
        out_proj.bias = bias(embed_dim)?;
        Ok(Self {
            in_proj_weight: packed(is_packed, [3 * embed_dim, embed_dim])?,
            q_proj_weight: packed(!is_packed, [embed_dim, embed_dim])?,
            k_proj_weight: packed(!is_packed, [embed_dim, key])?,
            v_proj_weight: packed(!is_packed, [embed_dim, value])?,
            in_proj_bias: bias(3 * embed_dim)?,
            bias_k: behind()?,
            bias_v: behind()?,
            out_proj,
            training: Training::default(),
            num_heads,
            options,
        })
    }

    /// Attention of queries `[t, n, e]` to keys `[s, n, ek]` and values `[s, n, ev]`. If the batch
    /// is first, the shapes are `[n, t, e]` and so on. The batch dimension is optional. On request
    /// it also returns the weights, `[n, t, s]`, or `[n, heads, t, s]` for each head.
    ///
    /// # Errors
    /// Fails for unsupported shapes or dtypes.
    pub fn forward(
        &self,
        query: &Tensor,
        key: &Tensor,
        value: &Tensor,
        masks: AttentionMasks,
    ) -> RusTorchResult<(Tensor, Option<Tensor>)> {
        let embed_dim = self.out_proj.weight.shape()[0];
        let expected = format_args!("queries of {embed_dim} features");
        let got = format_args!("{:?}", query.shape());
        let fits = query.shape().last() == Some(&embed_dim);
        require("MultiheadAttention", fits, expected, got)?;
        let swaps = self.options.batch_first && query.rank() == 3;
        let placed = |x: &Tensor| {
            if swaps {
                x.transpose(0, 1)
            } else {
                Ok(x.clone())
            }
        };
        let separate = [
            &self.q_proj_weight,
            &self.k_proj_weight,
            &self.v_proj_weight,
        ];
        let projections = match (&self.in_proj_weight, separate.map(Option::as_ref)) {
            (None, [Some(q), Some(k), Some(v)]) => Projections::Separate([q, k, v]),
            (packed, _) => Projections::Packed(packed.as_ref().unwrap_or(&self.out_proj.weight)),
        };
        let options = MultiHeadOptions {
            in_proj_bias: self.in_proj_bias.as_ref(),
            out_proj_bias: self.out_proj.bias.as_ref(),
            bias_kv: self
                .bias_k
                .as_ref()
                .zip(self.bias_v.as_ref())
                .map(|(k, v)| [k, v]),
            add_zero_attn: self.options.add_zero_attn,
            static_kv: [None; 2],
            dropout_p: self.options.dropout,
            training: self.training.is_on(),
            key_padding_mask: masks.key_padding_mask,
            attn_mask: masks.attn_mask,
            need_weights: masks.need_weights,
            average_attn_weights: masks.average_attn_weights,
        };
        let (output, weights) = placed(query)?.multi_head_attention_forward(
            &placed(key)?,
            &placed(value)?,
            self.num_heads,
            projections,
            &self.out_proj.weight,
            &options,
        )?;
        Ok((placed(&output)?, weights))
    }
}

/// The activation in a transformer layer's feed-forward part.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TransformerActivation {
    /// `max(x, 0)`.
    #[default]
    Relu,
    /// `x · Φ(x)`.
    Gelu,
}

impl rustorch_tensor::Converted for TransformerActivation {}

/// The options of transformers and their layers.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TransformerOptions {
    /// Size of the feed-forward part.
    pub dim_feedforward: usize,
    /// Dropout probability, in training.
    pub dropout: f64,
    /// The activation of the feed-forward part.
    pub activation: TransformerActivation,
    /// Added to the variances of norms.
    pub layer_norm_eps: f64,
    /// Puts the batch dimension first.
    pub batch_first: bool,
    /// Puts norms before attention and feed-forward parts, not after them.
    pub norm_first: bool,
    /// Adds biases to linear layers and norms.
    pub bias: bool,
}

impl Default for TransformerOptions {
    fn default() -> Self {
        Self {
            dim_feedforward: 2048,
            dropout: 0.1,
            activation: TransformerActivation::Relu,
            layer_norm_eps: 1e-5,
            batch_first: false,
            norm_first: false,
            bias: true,
        }
    }
}

impl TransformerOptions {
    super::layers::setters!(
        dim_feedforward: usize; dropout: f64; activation: TransformerActivation; layer_norm_eps: f64;
        batch_first: bool; norm_first: bool; bias: bool;
    );

    fn attention(&self, d_model: usize, nhead: usize) -> RusTorchResult<MultiheadAttention> {
        let options = MultiheadAttentionOptions::default()
            .dropout(self.dropout)
            .bias(self.bias)
            .batch_first(self.batch_first);
        MultiheadAttention::new(d_model, nhead, options)
    }

    fn linear(&self, from: usize, to: usize) -> RusTorchResult<Linear> {
        let linear = Linear::new(from, to)?;
        Ok(if self.bias {
            linear
        } else {
            linear.without_bias()
        })
    }

    fn norm(&self, d_model: usize) -> RusTorchResult<LayerNorm> {
        let norm = LayerNorm::new(d_model)?.eps(self.layer_norm_eps);
        Ok(if self.bias { norm } else { norm.without_bias() })
    }
}

/// Masks of self-attention.
#[derive(Clone, Copy, Default)]
pub struct SequenceMasks<'a> {
    /// An attention mask, see [`AttentionMasks::attn_mask`].
    pub mask: Option<&'a Tensor>,
    /// A padding mask of keys, see [`AttentionMasks::key_padding_mask`].
    pub key_padding_mask: Option<&'a Tensor>,
}

impl<'a> SequenceMasks<'a> {
    super::layers::setters!(mask: Option<&'a Tensor>; key_padding_mask: Option<&'a Tensor>;);

    fn attention(self) -> AttentionMasks<'a> {
        AttentionMasks {
            key_padding_mask: self.key_padding_mask,
            attn_mask: self.mask,
            need_weights: false,
            average_attn_weights: true,
        }
    }
}

/// `x` and the result of a sublayer for it, with the norm before or behind.
fn residual(
    x: &Tensor,
    norm: &LayerNorm,
    norm_first: bool,
    sublayer: impl FnOnce(&Tensor) -> RusTorchResult<Tensor>,
) -> RusTorchResult<Tensor> {
    match norm_first {
        true => x.add(&sublayer(&norm.forward(x)?)?),
        false => norm.forward(&x.add(&sublayer(x)?)?),
    }
}

fn activated(x: &Tensor, activation: TransformerActivation) -> RusTorchResult<Tensor> {
    match activation {
        TransformerActivation::Relu => x.relu(),
        TransformerActivation::Gelu => x.gelu(),
    }
}

/// Self-attention and a feed-forward part.
#[derive(Module)]
pub struct TransformerEncoderLayer {
    /// Attention.
    pub self_attn: MultiheadAttention,
    /// The first linear layer.
    pub linear1: Linear,
    /// The dropout between the linear layers.
    pub dropout: Dropout,
    /// The second linear layer.
    pub linear2: Linear,
    /// The norm of the attention.
    pub norm1: LayerNorm,
    /// The norm of the feed-forward part.
    pub norm2: LayerNorm,
    /// The dropout of the attention.
    pub dropout1: Dropout,
    /// The dropout of the feed-forward part.
    pub dropout2: Dropout,
    #[module(skip)]
    options: TransformerOptions,
}

#[track_calls(TransformerEncoderLayer)]
impl TransformerEncoderLayer {
    /// A layer of size `d_model`, with `nhead` heads of attention.
    ///
    /// # Errors
    /// Fails for a number of heads that does not divide the size, or for sizes too large for
    /// memory.
    pub fn new(d_model: usize, nhead: usize, options: TransformerOptions) -> RusTorchResult<Self> {
        let dropout = || Dropout::new(options.dropout);
        Ok(Self {
            self_attn: options.attention(d_model, nhead)?,
            linear1: options.linear(d_model, options.dim_feedforward)?,
            dropout: dropout()?,
            linear2: options.linear(options.dim_feedforward, d_model)?,
            norm1: options.norm(d_model)?,
            norm2: options.norm(d_model)?,
            dropout1: dropout()?,
            dropout2: dropout()?,
            options,
        })
    }

    /// The output for a sequence `[s, n, d]`, `[n, s, d]` if the batch is first, or `[s, d]`.
    ///
    /// # Errors
    /// Fails for unsupported shapes.
    pub fn forward(&self, src: &Tensor, masks: SequenceMasks) -> RusTorchResult<Tensor> {
        let TransformerOptions {
            norm_first,
            activation,
            ..
        } = self.options;
        let x = residual(src, &self.norm1, norm_first, |x| {
            let (y, _) = self.self_attn.forward(x, x, x, masks.attention())?;
            self.dropout1.forward(&y)
        })?;
        residual(&x, &self.norm2, norm_first, |x| {
            let x = activated(&self.linear1.forward(x)?, activation)?;
            self.dropout2
                .forward(&self.linear2.forward(&self.dropout.forward(&x)?)?)
        })
    }
}

/// Self-attention, cross-attention and a feed-forward part.
#[derive(Module)]
pub struct TransformerDecoderLayer {
    /// The self-attention.
    pub self_attn: MultiheadAttention,
    /// The cross-attention.
    pub multihead_attn: MultiheadAttention,
    /// The first linear layer.
    pub linear1: Linear,
    /// The dropout between the linear layers.
    pub dropout: Dropout,
    /// The second linear layer.
    pub linear2: Linear,
    /// The norm of the self-attention.
    pub norm1: LayerNorm,
    /// The norm of the cross-attention.
    pub norm2: LayerNorm,
    /// The norm of the feed-forward part.
    pub norm3: LayerNorm,
    /// The dropout of the self-attention.
    pub dropout1: Dropout,
    /// The dropout of the cross-attention.
    pub dropout2: Dropout,
    /// The dropout of the feed-forward part.
    pub dropout3: Dropout,
    #[module(skip)]
    options: TransformerOptions,
}

#[track_calls(TransformerDecoderLayer)]
impl TransformerDecoderLayer {
    /// A layer of size `d_model`, with `nhead` heads in each attention.
    ///
    /// # Errors
    /// Fails for a number of heads that does not divide the size, or for sizes too large for
    /// memory.
    pub fn new(d_model: usize, nhead: usize, options: TransformerOptions) -> RusTorchResult<Self> {
        let dropout = || Dropout::new(options.dropout);
        Ok(Self {
            self_attn: options.attention(d_model, nhead)?,
            multihead_attn: options.attention(d_model, nhead)?,
            linear1: options.linear(d_model, options.dim_feedforward)?,
            dropout: dropout()?,
            linear2: options.linear(options.dim_feedforward, d_model)?,
            norm1: options.norm(d_model)?,
            norm2: options.norm(d_model)?,
            norm3: options.norm(d_model)?,
            dropout1: dropout()?,
            dropout2: dropout()?,
            dropout3: dropout()?,
            options,
        })
    }

    /// The output for a sequence `[t, n, d]` and `memory` `[s, n, d]`. If the batch is first, the
    /// shapes are `[n, t, d]` and so on. The batch dimension is optional.
    ///
    /// # Errors
    /// Fails for unsupported shapes.
    pub fn forward(
        &self,
        tgt: &Tensor,
        memory: &Tensor,
        tgt_masks: SequenceMasks,
        memory_masks: SequenceMasks,
    ) -> RusTorchResult<Tensor> {
        let TransformerOptions {
            norm_first,
            activation,
            ..
        } = self.options;
        let x = residual(tgt, &self.norm1, norm_first, |x| {
            let (y, _) = self.self_attn.forward(x, x, x, tgt_masks.attention())?;
            self.dropout1.forward(&y)
        })?;
        let x = residual(&x, &self.norm2, norm_first, |x| {
            let masks = memory_masks.attention();
            let (y, _) = self.multihead_attn.forward(x, memory, memory, masks)?;
            self.dropout2.forward(&y)
        })?;
        residual(&x, &self.norm3, norm_first, |x| {
            let x = activated(&self.linear1.forward(x)?, activation)?;
            self.dropout3
                .forward(&self.linear2.forward(&self.dropout.forward(&x)?)?)
        })
    }
}

/// Stacks of layers: documentation, name, the layer's type.
macro_rules! stacks {
    ($($(#[$about:meta])* $Stack:ident of $Layer:ident;)*) => {
        $(
            $(#[$about])*
            #[derive(Module)]
            pub struct $Stack {
                /// The layers.
                pub layers: Vec<$Layer>,
                /// The norm after all layers.
                pub norm: Option<LayerNorm>,
            }

            #[track_calls($Stack)]
            impl $Stack {
                /// A stack of this many copies of `layer`, with its weights.
                ///
                /// # Errors
                /// Fails if the weights cannot be copied.
                pub fn new(
                    layer: &$Layer,
                    num_layers: usize,
                    norm: Option<LayerNorm>,
                ) -> RusTorchResult<Self> {
                    let layers = (0..num_layers).map(|_| deep_copy(layer));
                    Ok(Self { layers: layers.collect::<RusTorchResult<_>>()?, norm })
                }

                fn normed(&self, x: Tensor) -> RusTorchResult<Tensor> {
                    self.norm.as_ref().map_or(Ok(x.clone()), |norm| norm.forward(&x))
                }
            }
        )*
    };
}

stacks! {
    /// A stack of [`TransformerEncoderLayer`].
    TransformerEncoder of TransformerEncoderLayer;
    /// A stack of [`TransformerDecoderLayer`].
    TransformerDecoder of TransformerDecoderLayer;
}

#[track_calls(TransformerEncoder)]
impl TransformerEncoder {
    /// The same as [`TransformerEncoderLayer::forward`], layer by layer.
    ///
    /// # Errors
    /// Fails for unsupported shapes.
    pub fn forward(&self, src: &Tensor, masks: SequenceMasks) -> RusTorchResult<Tensor> {
        let mut layers = self.layers.iter();
        let x = layers.try_fold(src.clone(), |x, layer| layer.forward(&x, masks))?;
        self.normed(x)
    }
}

#[track_calls(TransformerDecoder)]
impl TransformerDecoder {
    /// The same as [`TransformerDecoderLayer::forward`], layer by layer.
    ///
    /// # Errors
    /// Fails for unsupported shapes.
    pub fn forward(
        &self,
        tgt: &Tensor,
        memory: &Tensor,
        tgt_masks: SequenceMasks,
        memory_masks: SequenceMasks,
    ) -> RusTorchResult<Tensor> {
        let mut layers = self.layers.iter();
        let step = |x: Tensor, layer: &TransformerDecoderLayer| {
            layer.forward(&x, memory, tgt_masks, memory_masks)
        };
        self.normed(layers.try_fold(tgt.clone(), step)?)
    }
}

/// An encoder, and a decoder that attends to its output.
#[derive(Module)]
pub struct Transformer {
    /// The encoder.
    pub encoder: TransformerEncoder,
    /// The decoder.
    pub decoder: TransformerDecoder,
}

#[track_calls(Transformer)]
impl Transformer {
    /// A transformer of size `d_model` with `nhead` heads, and these numbers of encoder and decoder
    /// layers. [`init::xavier_uniform_`].
    ///
    /// # Errors
    /// Fails for a number of heads that does not divide the size, or for sizes too large for
    /// memory.
    pub fn new(
        d_model: usize,
        nhead: usize,
        [encoder_layers, decoder_layers]: [usize; 2],
        options: TransformerOptions,
    ) -> RusTorchResult<Self> {
        let layer = TransformerEncoderLayer::new(d_model, nhead, options)?;
        let norm = Some(options.norm(d_model)?);
        let encoder = TransformerEncoder::new(&layer, encoder_layers, norm)?;
        let layer = TransformerDecoderLayer::new(d_model, nhead, options)?;
        let norm = Some(options.norm(d_model)?);
        let decoder = TransformerDecoder::new(&layer, decoder_layers, norm)?;
        let mut transformer = Self { encoder, decoder };
        transformer.change_parameters(&mut |weight| match weight.rank() {
            0 | 1 => Ok(()),
            _ => init::xavier_uniform_(weight, 1.0),
        })?;
        Ok(transformer)
    }

    /// The decoder's output for `tgt` and the encoded `src`.
    ///
    /// # Errors
    /// Fails for unsupported shapes.
    pub fn forward(
        &self,
        src: &Tensor,
        tgt: &Tensor,
        src_masks: SequenceMasks,
        tgt_masks: SequenceMasks,
        memory_masks: SequenceMasks,
    ) -> RusTorchResult<Tensor> {
        let memory = self.encoder.forward(src, src_masks)?;
        self.decoder.forward(tgt, &memory, tgt_masks, memory_masks)
    }

    /// A causal mask `[size, size]`: 0, and −∞ above the diagonal.
    ///
    /// # Errors
    /// Fails for sizes too large for memory.
    pub fn generate_square_subsequent_mask(size: usize) -> RusTorchResult<Tensor> {
        Tensor::full([size, size], f64::NEG_INFINITY, DType::F32)?.triu(1)
    }
}
