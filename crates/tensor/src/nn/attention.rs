//! What transformers are made of beside the common layers.

use rustorch_ir::ops::{Attention, Rope};
use rustorch_ir::{DType, Param};

use crate::Tensor;
use crate::error::{RusTorchResult, require};

/// The optional arguments of [`Tensor::scaled_dot_product_attention`].
#[derive(Clone, Copy, Default)]
pub struct AttentionOptions<'a> {
    /// Broadcasts to `[…, h, t, s]`: `bool`, true where a query may see a key; or of the
    /// queries' dtype, added to the scores.
    pub mask: Option<&'a Tensor>,
    /// Does query `i` see only keys `0 ..= i + past`?
    pub is_causal: bool,
    /// Multiplier of the scores; `1 / √d` if it is not given.
    pub scale: Option<f64>,
    /// `c`, for scores `c · tanh(score / c)` before the mask.
    pub soft_cap: Option<f64>,
    /// How many keys came before the first query: one `i32`, read at run time. For causal
    /// attention to a cache; 0 if it is not given.
    pub past: Option<&'a Tensor>,
}

impl Tensor {
    /// Attention of queries `self` `[…, h, t, d]` to `k` `[…, g, s, d]` and `v`
    /// `[…, g, s, dv]`: `softmax(scale · q kᵀ + mask) v`, of shape `[…, h, t, dv]` and the
    /// queries' dtype. Those of fewer dimensions are the same for each index of the others'. `g` divides `h`: each group of `h / g` queries shares its keys.
    ///
    /// Floats; `k` and `v` may have another dtype than the queries.
    ///
    /// # Errors
    /// Shapes or dtypes other than these; `past` without `is_causal`.
    pub fn scaled_dot_product_attention(
        &self,
        k: &Self,
        v: &Self,
        options: AttentionOptions,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "scaled_dot_product_attention";
        let [q, k, v] = of_one_rank([self, k, v])?;
        let (op, operands) = q.attention(NAME, [&k, &v], options, false)?;
        Self::apply(NAME, op, &operands.iter().collect::<Vec<_>>())
    }

    /// [`Tensor::scaled_dot_product_attention`], and `log Σ exp(score)` over the keys that a
    /// query sees, `f32` `[…, h, t]`: −∞ where it sees none. With it, attention to parts of the
    /// keys can be put together. Slower: it is computed step by step.
    ///
    /// # Errors
    /// As [`Tensor::scaled_dot_product_attention`].
    pub fn scaled_dot_product_attention_with_logsumexp(
        &self,
        k: &Self,
        v: &Self,
        options: AttentionOptions,
    ) -> RusTorchResult<(Self, Self)> {
        const NAME: &str = "scaled_dot_product_attention_with_logsumexp";
        let [q, k, v] = of_one_rank([self, k, v])?;
        let (op, operands) = q.attention(NAME, [&k, &v], options, true)?;
        let [y, totals] = Self::apply_all(NAME, op, &operands.iter().collect::<Vec<_>>())?;
        Ok((y, totals))
    }

    /// The operation and its operands.
    fn attention(
        &self,
        name: &'static str,
        [k, v]: [&Self; 2],
        options: AttentionOptions,
        log_sum_exp: bool,
    ) -> RusTorchResult<(Attention, Vec<Self>)> {
        require(name, self.rank() >= 3, "q [.., h, t, d]", self.ty())?;
        let width = self.shape()[self.rank() - 1];
        let op = Attention {
            scale: Param(options.scale.unwrap_or(1.0 / (width as f64).sqrt())),
            causal: options.is_causal,
            soft_cap: options.soft_cap.map(Param),
            mask: options.mask.is_some(),
            past: options.past.is_some(),
            log_sum_exp,
        };
        let mask = match options.mask {
            Some(mask) if mask.dtype() == DType::Bool => {
                let seen = Self::where_(mask, 0.0, f64::NEG_INFINITY)?;
                Some(seen.cast(name, self.dtype())?)
            }
            mask => mask.cloned(),
        };
        let operands = ([self, k, v].into_iter().cloned())
            .chain(mask)
            .chain(options.past.cloned());
        Ok((op, operands.collect()))
    }

    /// Rotary position embedding: pairs of the last dimension's features turned by angles
    /// that grow with `positions`. `self` is `[…, t, d]`, floats; `positions` `[t]`, `i32`;
    /// `factors` `[dims / 2]`, `f32`, divide the frequencies. Result as `self`.
    ///
    /// # Errors
    /// Shapes or dtypes other than these; odd `dims`, or more than `d`.
    pub fn rope(
        &self,
        positions: &Self,
        factors: Option<&Self>,
        rope: &Rope,
    ) -> RusTorchResult<Self> {
        let inputs: Vec<&Self> = [self, positions].into_iter().chain(factors).collect();
        Self::apply("rope", rope.clone(), &inputs)
    }
}

/// Tensors of the rank that the highest of them has, expanded to its first dimensions.
fn of_one_rank<const N: usize>(tensors: [&Tensor; N]) -> RusTorchResult<[Tensor; N]> {
    let first = tensors
        .iter()
        .max_by_key(|t| t.rank())
        .map(|t| t.shape().to_vec());
    let first = first.unwrap_or_default();
    let mut expanded = tensors.map(Tensor::clone);
    for tensor in &mut expanded {
        if (3..first.len()).contains(&tensor.rank()) {
            let lead = &first[..first.len() - tensor.rank()];
            *tensor = tensor.expand(&[lead, tensor.shape()].concat()[..])?;
        }
    }
    Ok(expanded)
}
