//! Attention of several heads with its projections:
//! [Vaswani et al.](https://arxiv.org/abs/1706.03762)

use rustorch_ir::DType;
use rustorch_macros::track_calls;

use crate::Tensor;
use crate::api::nn::AttentionOptions;
use crate::args::setting::setters;
use crate::error::{RusTorchResult, require};

/// The projections of queries, keys and values of width `e`.
#[derive(Clone, Copy)]
pub enum Projections<'a> {
    /// One weight `[3 e, e]`: of queries, keys and values, in this order.
    Packed(&'a Tensor),
    /// Separate weights: `[e, e]`, `[e, ek]` and `[e, ev]`.
    Separate([&'a Tensor; 3]),
}

/// The optional arguments of [`Tensor::multi_head_attention_forward`].
#[derive(Clone, Copy, Default)]
pub struct MultiHeadOptions<'a> {
    /// Biases of the projections, `[3 e]`.
    pub in_proj_bias: Option<&'a Tensor>,
    /// A bias of the result, `[e]`.
    pub out_proj_bias: Option<&'a Tensor>,
    /// A key and a value appended to the others, `[1, 1, e]`.
    pub bias_kv: Option<[&'a Tensor; 2]>,
    /// Appends a key and a value of zeros.
    pub add_zero_attn: bool,
    /// Projected keys or values computed before, `[n · heads, s, e / heads]`.
    pub static_kv: [Option<&'a Tensor>; 2],
    /// Dropout probability of the weights, in training.
    pub dropout_p: f64,
    /// Enables dropout of the weights.
    pub training: bool,
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

setters!(MultiHeadOptions<'a> {
    in_proj_bias: Option<&'a Tensor>, out_proj_bias: Option<&'a Tensor>,
    bias_kv: Option<[&'a Tensor; 2]>, add_zero_attn: bool, static_kv: [Option<&'a Tensor>; 2],
    dropout_p: f64, training: bool, key_padding_mask: Option<&'a Tensor>,
    attn_mask: Option<&'a Tensor>, need_weights: bool, average_attn_weights: bool,
});

#[track_calls]
impl Tensor {
    /// Multi-head attention of queries `self` `[t, n, e]` to `key` `[s, n, ek]` and `value`
    /// `[s, n, ev]`, multiplied by `out_proj_weight` `[e, e]`. The batch dimension `n` is optional.
    /// Returns `[t, n, e]` and, on request, the weights `[n, t, s]`, or `[n, heads, t, s]` for each
    /// head. Takes floats of one dtype.
    ///
    /// # Errors
    /// Fails for unsupported shapes or dtypes.
    pub fn multi_head_attention_forward(
        &self,
        key: &Self,
        value: &Self,
        heads: usize,
        projections: Projections,
        out_proj_weight: &Self,
        options: &MultiHeadOptions,
    ) -> RusTorchResult<(Self, Option<Self>)> {
        const NAME: &str = "multi_head_attention_forward";
        self.require_float(NAME)?;
        let has_batch = self.rank() == 3;
        let got = format_args!("{}, {} and {}", self.ty(), key.ty(), value.ty());
        let ranks = matches!(self.rank(), 2 | 3)
            && key.rank() == self.rank()
            && value.rank() == self.rank();
        require(
            NAME,
            ranks,
            "q [t, n, e], k and v [s, n, ..], or all without n",
            got,
        )?;
        let batched = |x: &Self| {
            if has_batch {
                Ok(x.clone())
            } else {
                x.unsqueeze(1)
            }
        };
        let (query, key, value) = (batched(self)?, batched(key)?, batched(value)?);
        let (t, n, e) = (query.shape()[0], query.shape()[1], query.shape()[2]);
        let got = format_args!("{} and {}", key.ty(), value.ty());
        let of_each =
            key.shape()[..2] == value.shape()[..2] || options.static_kv.iter().any(Option::is_some);
        require(NAME, of_each, "a value for each key", got)?;
        let divides = heads > 0 && e.is_multiple_of(heads);
        require(NAME, divides, format_args!("heads that divide {e}"), heads)?;
        let (layer, width) = (Layer { n, heads }, e / heads);

        let [q, mut k, mut v] = projected([&query, &key, &value], projections, options)?;
        if let Some(bias) = options.bias_kv {
            let [own_k, own_v] = bias.map(|bias| bias.expand([1, n, e]));
            (k, v) = (Self::cat(&[&k, &own_k?], 0)?, Self::cat(&[&v, &own_v?], 0)?);
        }
        let by_head = |x: &Self| x.reshape([x.shape()[0], n * heads, width])?.transpose(0, 1);
        let q = by_head(&q)?;
        let given = |own: &Self, given: Option<&Self>| match given {
            Some(given) => {
                let fits =
                    given.rank() == 3 && given.shape()[0] == n * heads && given.shape()[2] == width;
                let expected = format_args!("[{}, s, {width}]", n * heads);
                require(NAME, fits, expected, given.ty())?;
                Ok(given.clone())
            }
            None => by_head(own),
        };
        let [static_k, static_v] = options.static_kv;
        let (mut k, mut v) = (given(&k, static_k)?, given(&v, static_v)?);
        if options.add_zero_attn {
            let zeros = Self::zeros([n * heads, 1, width], self.dtype())?;
            (k, v) = (Self::cat(&[&k, &zeros], 1)?, Self::cat(&[&v, &zeros], 1)?);
        }
        let s = k.shape()[1];
        let mask = layer.mask(NAME, options, [t, s], self.dtype())?;

        // Outside training it is not looked at.
        let dropout_p = if options.training {
            options.dropout_p
        } else {
            0.0
        };
        let joined = |y: Self| -> RusTorchResult<Self> {
            let rows = y.transpose(0, 1)?.reshape([t, n, e])?;
            let rows = rows.linear(out_proj_weight, options.out_proj_bias)?;
            if has_batch { Ok(rows) } else { rows.squeeze(1) }
        };
        if !options.need_weights {
            let options = AttentionOptions::default()
                .mask(mask.as_ref())
                .dropout_p(dropout_p);
            let y = q.scaled_dot_product_attention(&k, &v, options)?;
            return Ok((joined(y)?, None));
        }
        let scores = q
            .mul((1.0 / width as f64).sqrt())?
            .matmul(&k.transpose(1, 2)?)?;
        let scores = match &mask {
            Some(mask) => scores.add(mask)?,
            None => scores,
        };
        let weights = scores.softmax(-1)?.dropout(dropout_p, true)?;
        let y = joined(weights.matmul(&v)?)?;
        let weights = weights.reshape([n, heads, t, s])?;
        let weights = match options.average_attn_weights {
            true => weights.mean(1, false)?,
            false => weights,
        };
        let weights = if has_batch {
            weights
        } else {
            weights.squeeze(0)?
        };
        Ok((y, Some(weights)))
    }
}

/// Queries, keys and values times their weights.
fn projected(
    operands: [&Tensor; 3],
    projections: Projections,
    options: &MultiHeadOptions,
) -> RusTorchResult<[Tensor; 3]> {
    let weights = match projections {
        Projections::Packed(weight) => thirds(weight)?,
        Projections::Separate(weights) => weights.map(Tensor::clone),
    };
    let biases = options.in_proj_bias.map(thirds).transpose()?;
    let part = |i: usize| {
        let bias = biases.as_ref().map(|biases| &biases[i]);
        operands[i].linear(&weights[i], bias)
    };
    Ok([part(0)?, part(1)?, part(2)?])
}

fn thirds(x: &Tensor) -> RusTorchResult<[Tensor; 3]> {
    let size = x.size(0)?;
    let fits = size.is_multiple_of(3);
    require(
        "multi_head_attention_forward",
        fits,
        "three weights or biases in one",
        x.ty(),
    )?;
    let part = |i: usize| x.narrow(0, i * (size / 3), size / 3);
    Ok([part(0)?, part(1)?, part(2)?])
}

/// Sizes that all steps need.
struct Layer {
    n: usize,
    heads: usize,
}

impl Layer {
    /// The bias of scores `[n · heads, t, s]`. The last keys may have been appended after the masks' keys.
    fn mask(
        &self,
        name: &'static str,
        options: &MultiHeadOptions,
        [t, s]: [usize; 2],
        dtype: DType,
    ) -> RusTorchResult<Option<Tensor>> {
        let more = usize::from(options.bias_kv.is_some()) + usize::from(options.add_zero_attn);
        let all = self.n * self.heads;
        let added = |mask: &Tensor| {
            let mask = match mask.dtype() {
                DType::Bool => Tensor::where_(mask, f64::NEG_INFINITY, 0.0)?.cast(name, dtype)?,
                _ => mask.cast(name, dtype)?,
            };
            mask.surrounded(name, &[(0, more)], 0)
        };
        let own = match options.attn_mask {
            Some(mask) => {
                let shape = mask.shape();
                let fits = *shape == [t, s.saturating_sub(more)]
                    || *shape == [all, t, s.saturating_sub(more)];
                let expected = format_args!(
                    "a mask {:?} or {:?}",
                    [t, s.saturating_sub(more)],
                    [all, t, s.saturating_sub(more)]
                );
                require(name, fits, expected, mask.ty())?;
                let legal = mask.dtype().is_float() || mask.dtype() == DType::Bool;
                require(name, legal, "a mask of bool or floats", mask.ty())?;
                Some(added(mask)?)
            }
            None => None,
        };
        let Some(keys) = options.key_padding_mask else {
            return Ok(own);
        };
        let legal = keys.dtype().is_float() || keys.dtype() == DType::Bool;
        require(name, legal, "a mask of bool or floats", keys.ty())?;
        let fits = keys.numel() == self.n * (s.saturating_sub(more));
        require(
            name,
            fits,
            format!("a mask {:?}", [self.n, s.saturating_sub(more)]),
            keys.ty(),
        )?;
        let keys = added(&keys.reshape([self.n, s.saturating_sub(more)])?)?;
        let keys = keys
            .reshape([self.n, 1, 1, s])?
            .expand([self.n, self.heads, 1, s])?;
        let keys = keys.reshape([all, 1, s])?;
        match own {
            Some(own) => own.add(&keys).map(Some),
            None => Ok(Some(keys)),
        }
    }
}
