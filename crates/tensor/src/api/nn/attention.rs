//! Attention and rotary embedding.

use rustorch_ir::ops::{Attention, Rope};
use rustorch_ir::{DType, Param, broadcast_shapes};
use rustorch_macros::track_calls;

use crate::api::amp::lowered;
use crate::args::setting::setters;
use crate::error::{RusTorchResult, require};
use crate::{Tensor, is_grad_enabled};

/// The optional arguments of [`Tensor::scaled_dot_product_attention`].
#[derive(Clone, Copy, Default)]
pub struct AttentionOptions<'a> {
    /// Broadcasts to `[…, h, t, s]`. A `bool` mask is true where a query may see a key. A mask of
    /// the queries' dtype is added to the scores.
    #[doc(alias = "attn_mask")]
    pub mask: Option<&'a Tensor>,
    /// Whether query `i` sees only keys `0 ..= i + past`.
    pub is_causal: bool,
    /// Multiplier of the scores; by default `1 / √d`.
    pub scale: Option<f64>,
    /// Soft cap `c`: scores become `c · tanh(score / c)` before the mask.
    pub soft_cap: Option<f64>,
    /// Number of keys before the first query: one `i32`, read at run time.
    pub past: Option<&'a Tensor>,
    /// Number of the latest keys that a query sees, with `is_causal`: a sliding window.
    pub window: Option<usize>,
    /// Dropout probability of each weight; the others are scaled.
    pub dropout_p: f64,
}

setters!(AttentionOptions<'a> {
    mask: Option<&'a Tensor>, is_causal: bool, scale: Option<f64>, soft_cap: Option<f64>,
    past: Option<&'a Tensor>, window: Option<usize>, dropout_p: f64,
});

impl<'a> AttentionOptions<'a> {
    /// Sets `mask`, by PyTorch's name.
    #[must_use]
    pub fn attn_mask(self, attn_mask: impl crate::Setting<Option<&'a Tensor>>) -> Self {
        self.mask(attn_mask)
    }
}

#[track_calls]
impl Tensor {
    /// Attention of queries `self` `[…, h, t, d]` to `k` `[…, g, s, d]` and `v` `[…, g, s, dv]`:
    /// `softmax(scale · q kᵀ + mask) v`. The result is `[…, h, t, dv]` in the queries' dtype. `g`
    /// divides `h`: each group of `h / g` queries shares its keys, as with PyTorch's `enable_gqa`.
    /// Leading dimensions and heads broadcast. The dimension of heads is optional. A query that
    /// sees no key gives 0.
    ///
    /// Floats; `k` and `v` may have another dtype than the queries.
    ///
    /// # Errors
    /// Fails for unsupported shapes or dtypes, or for `past` or `window` without `is_causal`. Also
    /// fails for a `dropout_p` outside `0..=1`, or beside `past` or `soft_cap`. Also fails for a
    /// `window` of 0. A `window` without `past` fails for more queries than keys.
    #[doc(alias = "enable_gqa")]
    pub fn scaled_dot_product_attention(
        &self,
        k: &Self,
        v: &Self,
        options: AttentionOptions,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "scaled_dot_product_attention";
        let [q, k, v] = &lowered(NAME, [self, k, v])?;
        let [q, k, v] = matched(NAME, [q, k, v])?;
        let y = match options.dropout_p == 0.0 {
            true => {
                // A gradient is computed from the totals, too.
                let tracked = [Some(&q), Some(&k), Some(&v), options.mask];
                let is_tracked = tracked.into_iter().flatten().any(Self::is_tracked);
                let log_sum_exp = is_tracked && is_grad_enabled();
                let parts = q.attention(NAME, [&k, &v], options, log_sum_exp)?;
                // The gradient of a mask is that of single steps, in which NaN would spread.
                let parts = match options.mask.is_some_and(Self::is_tracked) {
                    true => parts.without_hidden_rows()?,
                    false => parts,
                };
                let operands: Vec<&Self> = parts.operands.iter().collect();
                let y = Self::apply_node(NAME, parts.op.into(), &operands)?.swap_remove(0);
                y.where_seen(NAME, parts.seen.as_ref())?
            }
            false => q.attention_with_dropout(NAME, [&k, &v], options)?,
        };
        match y.rank() - self.rank().max(2).min(y.rank()) {
            lead if y.shape()[..lead].iter().all(|&n| n == 1) => y.reshape(&y.shape()[lead..]),
            _ => Ok(y),
        }
    }

    /// A mask of the `s` keys that each of `t` queries sees, `[t, s]`, by `past` and `window`.
    fn causal(t: usize, s: usize, options: &AttentionOptions) -> RusTorchResult<Self> {
        let index = |n: usize| Self::arange_with(0, n as i64, 1, DType::I32);
        let mut last = index(t)?.unsqueeze(1)?;
        if let Some(past) = options.past {
            last = last.add(&past.reshape([1])?)?;
        }
        let keys = index(s)?;
        let seen = keys.le(&last)?;
        match options.window.filter(|&window| window < s) {
            Some(window) => seen.logical_and(&keys.gt(&last.sub(window as i64)?)?),
            None => Ok(seen),
        }
    }

    /// 0 for queries that see no key.
    fn where_seen(&self, name: &'static str, seen: Option<&Self>) -> RusTorchResult<Self> {
        match seen {
            Some(seen) => Self::where_(seen, self, 0.0)?.cast(name, self.dtype()),
            None => Ok(self.clone()),
        }
    }

    /// Attention whose weights are left out by chance, step by step.
    fn attention_with_dropout(
        &self,
        name: &'static str,
        [k, v]: [&Self; 2],
        options: AttentionOptions,
    ) -> RusTorchResult<Self> {
        let alone = options.past.is_none() && options.soft_cap.is_none();
        require(
            name,
            alone,
            "dropout_p without past and soft_cap",
            options.dropout_p,
        )?;
        let parts = self.attention(name, [k, v], options, false)?;
        let parts = parts.without_hidden_rows()?;
        let q = self.widened(name)?;
        let (rank, heads) = (q.rank(), q.shape()[q.rank() - 3]);
        let shared = |x: &Self| {
            let shape = x.shape();
            let (lead, own) = shape.split_at(rank - 3);
            let each = heads / own[0];
            let grown = [lead, &[own[0], each], &own[1..]].concat();
            let whole = [lead, &[heads], &own[1..]].concat();
            let x = x.cast(name, q.dtype())?.unsqueeze(-3)?;
            x.expand(&grown[..])?.reshape(&whole[..])
        };
        let (k, v) = (shared(k)?, shared(v)?);
        let mut scores = q.matmul(&k.transpose(-2, -1)?)?.mul(parts.op.scale.0)?;
        if let Some(mask) = parts.operands.get(3) {
            scores = scores.add(&mask.cast(name, q.dtype())?)?;
        }
        if options.is_causal {
            let causal = Self::causal(q.shape()[rank - 2], k.shape()[rank - 2], &options)?;
            scores = Self::where_(&causal, &scores, f64::NEG_INFINITY)?;
        }
        let weights = scores.softmax(-1)?.dropout(options.dropout_p, true)?;
        let y = weights.matmul(&v)?.cast(name, self.dtype())?;
        y.where_seen(name, parts.seen.as_ref())
    }

    /// [`Tensor::scaled_dot_product_attention`], and `log Σ exp(score)` over the visible keys of each query, `[…, h,
    /// t]`, −∞ if there are none. Its dtype is `f64` for `f64` queries, else `f32`. With it, attention to separate
    /// parts of the keys can be combined.
    ///
    /// # Errors
    /// The same errors as [`Tensor::scaled_dot_product_attention`]. Also fails for a `dropout_p`
    /// above 0.
    pub fn scaled_dot_product_attention_with_logsumexp(
        &self,
        k: &Self,
        v: &Self,
        options: AttentionOptions,
    ) -> RusTorchResult<(Self, Self)> {
        const NAME: &str = "scaled_dot_product_attention_with_logsumexp";
        let no_dropout = options.dropout_p == 0.0;
        require(NAME, no_dropout, "no dropout_p", options.dropout_p)?;
        let [q, k, v] = matched(NAME, [self, k, v])?;
        let parts = q.attention(NAME, [&k, &v], options, true)?;
        let operands: Vec<&Self> = parts.operands.iter().collect();
        let [y, totals] = Self::apply_all(NAME, parts.op, &operands)?;
        Ok((y.where_seen(NAME, parts.seen.as_ref())?, totals))
    }

    /// The operation and its operands, checked.
    fn attention(
        &self,
        name: &'static str,
        [k, v]: [&Self; 2],
        options: AttentionOptions,
        log_sum_exp: bool,
    ) -> RusTorchResult<Parts> {
        require(name, self.rank() >= 3, "q [.., h, t, d]", self.ty())?;
        let width = self.shape()[self.rank() - 1];
        let op = Attention {
            scale: Param(options.scale.unwrap_or(1.0 / (width as f64).sqrt())),
            causal: options.is_causal,
            soft_cap: options.soft_cap.map(Param),
            mask: options.mask.is_some(),
            past: options.past.is_some(),
            window: options.window,
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
        let operands: Vec<Self> = operands.collect();
        // The operation checks its operands.
        rustorch_ir::OpDef::infer(&op, &operands.iter().map(Self::ty).collect::<Vec<_>>())?;
        let [t, s] = [self, k].map(|x| x.shape()[x.rank() - 2]);
        let seen = match options.mask {
            Some(mask) => {
                let causal = || Self::causal(t, s, &options);
                let causal = options.is_causal.then(causal).transpose()?;
                Some(mask.rows_seen(causal.as_ref())?)
            }
            None => None,
        };
        Ok(Parts { op, operands, seen })
    }

    /// Queries that see a key, by a mask alone or together with `causal`: `[.., t, 1]`.
    fn rows_seen(&self, causal: Option<&Self>) -> RusTorchResult<Self> {
        match (self.dtype(), causal) {
            (DType::Bool, Some(causal)) => self.logical_and(causal)?.any(-1, true),
            (DType::Bool, None) => self.any(-1, true),
            (_, causal) => {
                let mask = match causal {
                    Some(causal) => &Self::where_(causal, self, f64::NEG_INFINITY)?,
                    None => self,
                };
                mask.max(-1, true)?.ne(f64::NEG_INFINITY)
            }
        }
    }

    /// Rotary position embedding: rotates pairs of features in the last dimension by angles that
    /// grow with `positions`. `self` is `[…, t, d]`, floats. `positions` is `[t]`, `i32`.
    /// `factors`, `[dims / 2]` of `f32`, divide the frequencies. The result has the shape and dtype
    /// of `self`.
    ///
    /// # Errors
    /// Fails for unsupported shapes or dtypes, or if `dims` is odd or above `d`.
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

/// An attention that is not recorded yet.
struct Parts {
    op: Attention,
    operands: Vec<Tensor>,
    /// Queries that see a key, `[.., t, 1]`, if there is a mask: without one all do.
    seen: Option<Tensor>,
}

impl Parts {
    /// The same with a mask that hides nothing from queries which see no key.
    fn without_hidden_rows(mut self) -> RusTorchResult<Self> {
        if let Some(seen) = &self.seen {
            let mask = &mut self.operands[3];
            *mask = Tensor::where_(seen, &*mask, 0.0)?;
        }
        Ok(self)
    }
}

/// Queries, keys and values of one rank, at least 3. Their leading dimensions are equal, and so are keys' and
/// values' heads.
fn matched(name: &'static str, tensors: [&Tensor; 3]) -> RusTorchResult<[Tensor; 3]> {
    let rank = tensors.iter().map(|x| x.rank()).max().unwrap_or(0).max(3);
    let is_same =
        |x: &&Tensor| x.rank() == rank && x.shape()[..rank - 3] == tensors[0].shape()[..rank - 3];
    if tensors[0].rank() == rank && tensors[1..].iter().all(is_same) {
        let [q, k, v] = tensors.map(|x| x.shape()[rank - 3]);
        if k == v && (q != 1 || k == 1) {
            return Ok(tensors.map(Tensor::clone));
        }
    }
    for x in tensors {
        require(name, x.rank() >= 2, "q, k and v of rank 2 or more", x.ty())?;
    }
    let aligned = tensors.map(|x| {
        let shape = [&vec![1; rank - x.rank()][..], x.shape()].concat();
        x.reshape(&shape[..])
    });
    let [q, k, v] = aligned;
    let (q, k, v) = (q?, k?, v?);
    let lead = |x: &Tensor| x.shape()[..rank - 3].to_vec();
    let both = broadcast_shapes(name, &lead(&q), &lead(&k))?;
    let all = broadcast_shapes(name, &both, &lead(&v))?;
    let heads = |x: &Tensor| x.shape()[rank - 3];
    let shared = broadcast_shapes(name, &[heads(&k)], &[heads(&v)])?[0];
    let own = if heads(&q) == 1 { shared } else { heads(&q) };
    let grown = |x: Tensor, heads: usize| {
        x.expand(&[&all[..], &[heads], &x.shape()[rank - 2..]].concat()[..])
    };
    Ok([grown(q, own)?, grown(k, shared)?, grown(v, shared)?])
}
