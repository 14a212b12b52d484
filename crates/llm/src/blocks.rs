//! The parts that decoders are made of. Each declares its weights by their GGUF names and
//! says its forward pass in tensor operations, once, for every weight format and device.

use rustorch_ir::DType;
use rustorch_ir::ops::Rope;
use rustorch_tensor::{AttentionOptions, RusTorchResult, Tensor};

use crate::LlmError;
use crate::adapters::LowRank;
use crate::config::Config;
use crate::kv_cache::LayerCache;
use crate::weights::Weights;

/// `x · wᵀ + bias`, whatever the weights' format, and what adapters add.
pub(crate) struct Linear {
    weight: Tensor,
    bias: Option<Tensor>,
    adapters: Vec<LowRank>,
}

impl Linear {
    /// `{name}.weight` `[outputs, inputs]` and, where the file has it, `{name}.bias`.
    pub(crate) fn load(
        w: &Weights,
        name: &str,
        outputs: usize,
        inputs: usize,
    ) -> Result<Self, LlmError> {
        let weight = format!("{name}.weight");
        Ok(Self {
            weight: w.get(&weight, &[outputs, inputs])?,
            bias: w.opt_f32(&format!("{name}.bias"), &[outputs])?,
            adapters: w.low_rank(&weight),
        })
    }

    pub(crate) fn forward(&self, x: &Tensor) -> RusTorchResult<Tensor> {
        let y = x.linear(&self.weight, self.bias.as_ref())?;
        let mut adapters = self.adapters.iter();
        adapters.try_fold(y, |y, adapter| y.add(&adapter.product(x)?))
    }
}

/// The rows of a table that token ids name, with what adapters add to them.
pub(crate) struct Embedding {
    table: Tensor,
    adapters: Vec<LowRank>,
}

impl Embedding {
    /// `{name}.weight` `[vocab, width]`.
    pub(crate) fn load(
        w: &Weights,
        name: &str,
        vocab: usize,
        width: usize,
    ) -> Result<Self, LlmError> {
        let name = format!("{name}.weight");
        Ok(Self {
            table: w.get(&name, &[vocab, width])?,
            adapters: w.low_rank(&name),
        })
    }

    /// The table as a head that has no weights of its own. Adapters of the table change its rows
    /// alone, as where they are trained ([PEFT](https://github.com/huggingface/peft)).
    pub(crate) fn tied_head(&self) -> Linear {
        Linear {
            weight: self.table.clone(),
            bias: None,
            adapters: Vec::new(),
        }
    }

    /// `tokens` `[t]` to `f32` `[t, width]`.
    pub(crate) fn forward(&self, tokens: &Tensor) -> RusTorchResult<Tensor> {
        let rows = self.table.embedding_as(tokens, DType::F32)?;
        let mut adapters = self.adapters.iter();
        adapters.try_fold(rows, |rows, adapter| rows.add(&adapter.rows(tokens)?))
    }
}

/// Root-mean-square norm of the last dimension.
pub(crate) struct RmsNorm {
    weight: Tensor,
    eps: f64,
}

impl RmsNorm {
    /// `{name}.weight` `[width]`.
    pub(crate) fn load(w: &Weights, name: &str, width: usize, eps: f64) -> Result<Self, LlmError> {
        let weight = w.f32(&format!("{name}.weight"), &[width])?;
        Ok(Self { weight, eps })
    }

    /// As [`Self::load`], if the file has it.
    pub(crate) fn opt(
        w: &Weights,
        name: &str,
        width: usize,
        eps: f64,
    ) -> Result<Option<Self>, LlmError> {
        let weight = w.opt_f32(&format!("{name}.weight"), &[width])?;
        Ok(weight.map(|weight| Self { weight, eps }))
    }

    pub(crate) fn forward(&self, x: &Tensor) -> RusTorchResult<Tensor> {
        x.rms_norm(self.weight.shape(), Some(&self.weight), self.eps)
    }
}

/// What all layers of one forward pass share.
pub(crate) struct Pass<'a> {
    /// Positions of the tokens, `i32` `[t]`.
    pub(crate) positions: &'a Tensor,
    /// The position of the first one, `i32` `[1]`.
    pub(crate) past: &'a Tensor,
}

/// Rotary embedding with the model's frequencies.
pub(crate) struct Rotary {
    op: Rope,
    factors: Option<Tensor>,
}

impl Rotary {
    /// As the hyper-parameters say; `rope_freqs.weight` where the file has it.
    pub(crate) fn load(w: &Weights, c: &Config) -> Result<Self, LlmError> {
        Ok(Self {
            op: Rope {
                dims: c.rope_dims,
                layout: c.rope_layout,
                base: c.rope_base.into(),
                scaling: c.rope_scaling,
            },
            factors: w.opt_f32("rope_freqs.weight", &[c.rope_dims / 2])?,
        })
    }

    fn forward(&self, x: &Tensor, positions: &Tensor) -> RusTorchResult<Tensor> {
        x.rope(positions, self.factors.as_ref(), &self.op)
    }
}

/// Self-attention with grouped queries; norms of queries and keys where the file has them.
pub(crate) struct SelfAttention {
    q: Linear,
    k: Linear,
    v: Linear,
    output: Linear,
    q_norm: Option<RmsNorm>,
    k_norm: Option<RmsNorm>,
    heads: usize,
    kv_heads: usize,
    key_width: usize,
    value_width: usize,
}

impl SelfAttention {
    /// The weights `{layer}.attn_*`.
    pub(crate) fn load(w: &Weights, layer: &str, c: &Config) -> Result<Self, LlmError> {
        let name = |part: &str| format!("{layer}.attn_{part}");
        let (keys, values) = (c.kv_heads * c.key_width, c.kv_heads * c.value_width);
        Ok(Self {
            q: Linear::load(w, &name("q"), c.heads * c.key_width, c.width)?,
            k: Linear::load(w, &name("k"), keys, c.width)?,
            v: Linear::load(w, &name("v"), values, c.width)?,
            output: Linear::load(w, &name("output"), c.width, c.heads * c.value_width)?,
            q_norm: RmsNorm::opt(w, &name("q_norm"), c.key_width, c.rms_eps)?,
            k_norm: RmsNorm::opt(w, &name("k_norm"), c.key_width, c.rms_eps)?,
            heads: c.heads,
            kv_heads: c.kv_heads,
            key_width: c.key_width,
            value_width: c.value_width,
        })
    }

    /// `x` `[t, width]` to `[t, width]`; keys and values go to the cache.
    fn forward(
        &self,
        x: &Tensor,
        pass: &Pass,
        rotary: &Rotary,
        cache: &LayerCache,
    ) -> RusTorchResult<Tensor> {
        let t = x.shape()[0];
        let heads = |x: Tensor, n: usize, width: usize| x.reshape([t, n, width]);
        let normed = |x: Tensor, norm: &Option<RmsNorm>| match norm {
            Some(norm) => norm.forward(&x),
            None => Ok(x),
        };
        let q = heads(self.q.forward(x)?, self.heads, self.key_width)?;
        let k = heads(self.k.forward(x)?, self.kv_heads, self.key_width)?;
        let v = heads(self.v.forward(x)?, self.kv_heads, self.value_width)?;
        let q = normed(q, &self.q_norm)?.permute([1, 0, 2])?;
        let k = normed(k, &self.k_norm)?.permute([1, 0, 2])?;
        let q = rotary.forward(&q, pass.positions)?;
        let k = rotary.forward(&k, pass.positions)?;
        let k = cache.keys.update_slice_(&k, 1, pass.past)?;
        let v = cache
            .values
            .update_slice_(&v.permute([1, 0, 2])?, 1, pass.past)?;
        let options = AttentionOptions {
            is_causal: true,
            past: Some(pass.past),
            ..AttentionOptions::default()
        };
        let y = q.scaled_dot_product_attention(&k, &v, options)?;
        let y = y
            .permute([1, 0, 2])?
            .reshape([t, self.heads * self.value_width])?;
        self.output.forward(&y)
    }
}

/// Feed-forward part `down(silu(gate(x)) · up(x))` ([Shazeer](https://arxiv.org/abs/2002.05202)).
pub(crate) struct SwiGlu {
    gate: Linear,
    up: Linear,
    down: Linear,
}

impl SwiGlu {
    /// The weights `{layer}.ffn_*`.
    pub(crate) fn load(w: &Weights, layer: &str, c: &Config) -> Result<Self, LlmError> {
        let name = |part: &str| format!("{layer}.ffn_{part}");
        Ok(Self {
            gate: Linear::load(w, &name("gate"), c.ff_width, c.width)?,
            up: Linear::load(w, &name("up"), c.ff_width, c.width)?,
            down: Linear::load(w, &name("down"), c.width, c.ff_width)?,
        })
    }

    fn forward(&self, x: &Tensor) -> RusTorchResult<Tensor> {
        let gated = self.gate.forward(x)?.silu()?.mul(&self.up.forward(x)?)?;
        self.down.forward(&gated)
    }
}

/// A layer: attention, then feed-forward, each behind a norm and beside a short cut; and what control
/// vectors add.
pub(crate) struct Layer {
    attention_norm: RmsNorm,
    attention: SelfAttention,
    ff_norm: RmsNorm,
    ff: SwiGlu,
    direction: Option<Tensor>,
}

impl Layer {
    /// The weights of layer `index`.
    pub(crate) fn load(w: &Weights, index: usize, c: &Config) -> Result<Self, LlmError> {
        let layer = format!("blk.{index}");
        Ok(Self {
            attention_norm: RmsNorm::load(w, &format!("{layer}.attn_norm"), c.width, c.rms_eps)?,
            attention: SelfAttention::load(w, &layer, c)?,
            ff_norm: RmsNorm::load(w, &format!("{layer}.ffn_norm"), c.width, c.rms_eps)?,
            ff: SwiGlu::load(w, &layer, c)?,
            direction: w.direction(index),
        })
    }

    pub(crate) fn forward(
        &self,
        x: &Tensor,
        pass: &Pass,
        rotary: &Rotary,
        cache: &LayerCache,
    ) -> RusTorchResult<Tensor> {
        let attended =
            self.attention
                .forward(&self.attention_norm.forward(x)?, pass, rotary, cache)?;
        let x = x.add(&attended)?;
        let fed = self.ff.forward(&self.ff_norm.forward(&x)?)?;
        let x = x.add(&fed)?;
        match &self.direction {
            Some(direction) => x.add(direction),
            None => Ok(x),
        }
    }
}
