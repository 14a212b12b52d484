//! Attention of several heads, and transformers: [Vaswani et al.](https://arxiv.org/abs/1706.03762)

use rustorch_ir::DType;
use rustorch_macros::track_calls;
use rustorch_tensor::nn::{MultiHeadOptions, Projections};
use rustorch_tensor::{RusTorchResult, Tensor};

use super::{Dropout, Forward, LayerNorm, Linear, Module, Training, deep_copy, init, parameter};
use crate::error::require;

/// The options of [`MultiheadAttention::new`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MultiheadAttentionOptions {
    /// With which probability weights are left out, in training.
    pub dropout: f64,
    /// Have projections biases?
    pub bias: bool,
    /// Is a trained key and value put behind the others?
    pub add_bias_kv: bool,
    /// Is a key and value of zeros put behind the others?
    pub add_zero_attn: bool,
    /// Size of keys; `None`: that of queries.
    pub kdim: Option<usize>,
    /// Size of values; `None`: that of queries.
    pub vdim: Option<usize>,
    /// Is the batch the first dimension?
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
    /// Keys that are not seen, `[n, s]` or `[s]`: `bool`, true where not, or floats that are added.
    pub key_padding_mask: Option<&'a Tensor>,
    /// Which keys a query does not see, `[t, s]` or `[n · heads, t, s]`: `bool`, true where not, or floats that are
    /// added.
    pub attn_mask: Option<&'a Tensor>,
    /// Are the weights wanted, too?
    pub need_weights: bool,
    /// Is it their mean over the heads?
    pub average_attn_weights: bool,
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

/// Attention of several heads, with its projections.
#[derive(Clone, Module)]
pub struct MultiheadAttention {
    /// Of queries, keys and values, `[3 e, e]`, if all have the size `e`.
    pub in_proj_weight: Option<Tensor>,
    /// Of queries, else, `[e, e]`.
    pub q_proj_weight: Option<Tensor>,
    /// Of keys, else, `[e, ek]`.
    pub k_proj_weight: Option<Tensor>,
    /// Of values, else, `[e, ev]`.
    pub v_proj_weight: Option<Tensor>,
    /// `[3 e]`.
    pub in_proj_bias: Option<Tensor>,
    /// A key behind the others, `[1, 1, e]`.
    pub bias_k: Option<Tensor>,
    /// Its value, `[1, 1, e]`.
    pub bias_v: Option<Tensor>,
    /// What results are multiplied by.
    pub out_proj: Linear,
    /// Are weights left out?
    pub training: Training,
    #[module(skip)]
    num_heads: usize,
    #[module(skip)]
    options: MultiheadAttentionOptions,
}

#[track_calls(MultiheadAttention)]
impl MultiheadAttention {
    /// Of `num_heads` heads that share `embed_dim`. Projections are drawn by [`init::xavier_uniform_`], biases are 0.
    ///
    /// # Errors
    /// Heads that do not divide the size; more than memory could hold.
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

    /// Attention of queries `[t, n, e]` to keys `[s, n, ek]` and values `[s, n, ev]` (`[n, t, e]` and so on if the
    /// batch is first, or without a batch), and, where they are wanted, the weights `[n, t, s]`, or
    /// `[n, heads, t, s]` of each head.
    ///
    /// # Errors
    /// Other shapes or dtypes.
    pub fn forward(
        &self,
        query: &Tensor,
        key: &Tensor,
        value: &Tensor,
        masks: AttentionMasks,
    ) -> RusTorchResult<(Tensor, Option<Tensor>)> {
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

/// The function between the two products of a transformer's layer.
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
    /// Size between the two products.
    pub dim_feedforward: usize,
    /// With which probability elements are left out, in training.
    pub dropout: f64,
    /// The function between the two products.
    pub activation: TransformerActivation,
    /// Added to variances.
    pub layer_norm_eps: f64,
    /// Is the batch the first dimension?
    pub batch_first: bool,
    /// Do norms come before attention and products, not behind them?
    pub norm_first: bool,
    /// Have products and norms biases?
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

/// Masks of a sequence that attends to itself.
#[derive(Clone, Copy, Default)]
pub struct SequenceMasks<'a> {
    /// Which keys a query does not see, as [`AttentionMasks::attn_mask`].
    pub mask: Option<&'a Tensor>,
    /// Keys that are not seen, as [`AttentionMasks::key_padding_mask`].
    pub key_padding_mask: Option<&'a Tensor>,
}

impl<'a> SequenceMasks<'a> {
    fn attention(self) -> AttentionMasks<'a> {
        AttentionMasks {
            key_padding_mask: self.key_padding_mask,
            attn_mask: self.mask,
            need_weights: false,
            average_attn_weights: true,
        }
    }
}

/// `x` and what a sublayer makes of it, with the norm before or behind.
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

/// Attention of a sequence to itself, and two products.
#[derive(Clone, Module)]
pub struct TransformerEncoderLayer {
    /// Attention.
    pub self_attn: MultiheadAttention,
    /// The first product.
    pub linear1: Linear,
    /// Between the products.
    pub dropout: Dropout,
    /// The second product.
    pub linear2: Linear,
    /// Of the attention.
    pub norm1: LayerNorm,
    /// Of the products.
    pub norm2: LayerNorm,
    /// Of the attention.
    pub dropout1: Dropout,
    /// Of the products.
    pub dropout2: Dropout,
    #[module(skip)]
    options: TransformerOptions,
}

#[track_calls(TransformerEncoderLayer)]
impl TransformerEncoderLayer {
    /// Of size `d_model`, whose attention has `nhead` heads.
    ///
    /// # Errors
    /// Heads that do not divide the size; more than memory could hold.
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

    /// Of a sequence `[s, n, d]`, `[n, s, d]` if the batch is first, or `[s, d]`.
    ///
    /// # Errors
    /// Other shapes.
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

/// Attention of a sequence to itself and to another, and two products.
#[derive(Clone, Module)]
pub struct TransformerDecoderLayer {
    /// Attention to itself.
    pub self_attn: MultiheadAttention,
    /// Attention to the other.
    pub multihead_attn: MultiheadAttention,
    /// The first product.
    pub linear1: Linear,
    /// Between the products.
    pub dropout: Dropout,
    /// The second product.
    pub linear2: Linear,
    /// Of the attention to itself.
    pub norm1: LayerNorm,
    /// Of the attention to the other.
    pub norm2: LayerNorm,
    /// Of the products.
    pub norm3: LayerNorm,
    /// Of the attention to itself.
    pub dropout1: Dropout,
    /// Of the attention to the other.
    pub dropout2: Dropout,
    /// Of the products.
    pub dropout3: Dropout,
    #[module(skip)]
    options: TransformerOptions,
}

#[track_calls(TransformerDecoderLayer)]
impl TransformerDecoderLayer {
    /// Of size `d_model`, whose attentions have `nhead` heads.
    ///
    /// # Errors
    /// Heads that do not divide the size; more than memory could hold.
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

    /// Of a sequence `[t, n, d]` and `memory` `[s, n, d]`, `[n, t, d]` and so on if the batch is first, or without a
    /// batch.
    ///
    /// # Errors
    /// Other shapes.
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
            #[derive(Clone, Module)]
            pub struct $Stack {
                /// The layers.
                pub layers: Vec<$Layer>,
                /// Behind them all.
                pub norm: Option<LayerNorm>,
            }

            #[track_calls($Stack)]
            impl $Stack {
                /// So many layers like `layer`, which begin with its weights.
                ///
                /// # Errors
                /// The weights cannot be copied.
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
    /// Layers of [`TransformerEncoderLayer`].
    TransformerEncoder of TransformerEncoderLayer;
    /// Layers of [`TransformerDecoderLayer`].
    TransformerDecoder of TransformerDecoderLayer;
}

#[track_calls(TransformerEncoder)]
impl TransformerEncoder {
    /// As [`TransformerEncoderLayer::forward`], layer by layer.
    ///
    /// # Errors
    /// Other shapes.
    pub fn forward(&self, src: &Tensor, masks: SequenceMasks) -> RusTorchResult<Tensor> {
        let mut layers = self.layers.iter();
        let x = layers.try_fold(src.clone(), |x, layer| layer.forward(&x, masks))?;
        self.normed(x)
    }
}

#[track_calls(TransformerDecoder)]
impl TransformerDecoder {
    /// As [`TransformerDecoderLayer::forward`], layer by layer.
    ///
    /// # Errors
    /// Other shapes.
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

/// An encoder, and a decoder that attends to what it makes.
#[derive(Clone, Module)]
pub struct Transformer {
    /// The encoder.
    pub encoder: TransformerEncoder,
    /// The decoder.
    pub decoder: TransformerDecoder,
}

#[track_calls(Transformer)]
impl Transformer {
    /// Of size `d_model`, `nhead` heads, and so many layers in the encoder and the decoder. Matrices are drawn by
    /// [`init::xavier_uniform_`].
    ///
    /// # Errors
    /// Heads that do not divide the size; more than memory could hold.
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

    /// What the decoder makes of `tgt` and of what the encoder makes of `src`.
    ///
    /// # Errors
    /// Other shapes.
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

    /// A mask `[size, size]` by which each position sees none behind it: 0, and −∞ above the diagonal.
    ///
    /// # Errors
    /// More than memory could hold.
    pub fn generate_square_subsequent_mask(size: usize) -> RusTorchResult<Tensor> {
        Tensor::full([size, size], f64::NEG_INFINITY, DType::F32)?.triu(1)
    }
}
