//! RWKV's mixers of tokens, versions 6 and 7, and its feed-forward part.

use rustorch_tensor::{RusTorchResult, Tensor};

use super::linear::{Linear, Scaled};
use super::pass::Pass;
use crate::LlmError;
use crate::kv_cache::LayerCache;
use crate::spec::{ChannelMixSpec, Need, RecurrentSpec, Rwkv6Spec, Rwkv7Spec};
use crate::weights::Loader;

/// Addend to the variance in norms of heads.
const EPS: f64 = 64e-5;

/// Least length of a key that is divided by it.
const LENGTH: f64 = 1e-12;

/// Logarithm of the strongest decay of RWKV 7, −e^(−½) rounded as in its files' programs.
const STRONGEST: f64 = -0.606_531;

/// Number of shares of RWKV 6.
const SHARES: usize = 5;

/// Place of the feed-forward part's state, behind the two of the mixer.
const CHANNELS: usize = 2;

/// Weights of one layer.
struct Weights<'a> {
    w: &'a Loader<'a>,
    prefix: &'a str,
}

impl Weights<'_> {
    fn name(&self, name: &str) -> String {
        format!("{}{name}.weight", self.prefix)
    }

    fn has(&self, name: &str) -> bool {
        self.w.has(&self.name(name))
    }

    fn numbers(&self, name: &str, shape: &[usize]) -> Result<Tensor, LlmError> {
        self.w.f32(&self.name(name), shape)
    }

    fn product(&self, name: &str, outputs: usize, inputs: usize) -> Result<Linear, LlmError> {
        let name = format!("{}{name}", self.prefix);
        Linear::load(self.w, &name, outputs, inputs, Scaled::Never)
    }

    /// The products `{names[0]}` and `{names[1]}` by way of `rank` features, with the addend `{names[2]}`.
    fn narrow(&self, names: [&str; 3], width: usize, rank: usize) -> Result<Narrow, LlmError> {
        let [down, up, addend] = names;
        Ok(Narrow {
            down: self.product(down, rank, width)?,
            up: self.product(up, width, rank)?,
            addend: match addend {
                "" => None,
                name => Some(self.numbers(name, &[width])?),
            },
        })
    }
}

/// Two products by way of few features.
struct Narrow {
    down: Linear,
    up: Linear,
    addend: Option<Tensor>,
}

impl Narrow {
    /// `x` `[…, width]` to the same shape, with a function between the products.
    fn forward(
        &self,
        x: &Tensor,
        pass: &Pass,
        between: impl Fn(&Tensor) -> RusTorchResult<Tensor>,
    ) -> RusTorchResult<Tensor> {
        let few = between(&pass.at_home(&self.down.forward(x, pass)?)?)?;
        let y = pass.at_home(&self.up.forward(&few, pass)?)?;
        match &self.addend {
            Some(addend) => y.add(addend),
            None => Ok(y),
        }
    }
}

/// Tokens `[b, t, width]`, and by how much the ones before them differ.
struct Pair {
    own: Tensor,
    difference: Tensor,
}

impl Pair {
    /// The tokens `x` `[b · t, width]`. The last one goes to the cache, if there is one.
    fn new(
        x: &Tensor,
        pass: &Pass,
        cache: Option<&LayerCache>,
        place: usize,
    ) -> RusTorchResult<Self> {
        let own = pass.in_sequences(x)?;
        let (times, width) = (own.size(1)?, own.size(2)?);
        let before = pass.recurrent(cache, place, &[1, width])?;
        let all = Tensor::cat(&[&before, &own], 1)?;
        pass.keep_recurrent(cache, place, &all.narrow(1, times, 1)?)?;
        let difference = all.narrow(1, 0, times)?.sub(&own)?;
        Ok(Self { own, difference })
    }

    /// The tokens with a share of those before them.
    fn mixed(&self, share: &Tensor) -> RusTorchResult<Tensor> {
        self.own.add(&self.difference.mul(share)?)
    }
}

/// A norm of each head's result, with weights of all features.
struct Norm {
    weight: Tensor,
    bias: Tensor,
}

impl Norm {
    fn load(all: &Weights, width: usize) -> Result<Self, LlmError> {
        let bias = format!("{}time_mix_ln.bias", all.prefix);
        Ok(Self {
            weight: all.numbers("time_mix_ln", &[width])?,
            bias: all.w.f32(&bias, &[width])?,
        })
    }

    /// `y` `[b, t, heads, width]` to `[b, t, heads · width]`.
    fn forward(&self, y: &Tensor) -> RusTorchResult<Tensor> {
        let y = y.layer_norm([y.size(3)?], None, None, EPS)?;
        y.flatten(2, 3)?.mul(&self.weight)?.add(&self.bias)
    }
}

/// The mixer of tokens of RWKV 6 ([Peng et al.](https://arxiv.org/abs/2404.05892)), and that of QRWKV: the latter has
/// neither a bonus nor norms, and keys of what decays.
pub(super) struct Rwkv6 {
    spec: RecurrentSpec,
    /// The share of the token before that all other shares are made of.
    first_share: Tensor,
    /// Products that make shares, and their addends: of decays, keys, values, receptance and gate. The addends are one
    /// tensor `[5, 1, 1, width]`, or five `[width]`.
    shares: (Linear, Tensor),
    addends: Vec<Tensor>,
    products: [Linear; 3],
    gate: Linear,
    decays: Narrow,
    /// Factor of a token's own value `[heads, width]`, and the norm of results.
    bonus: Option<(Tensor, Norm)>,
}

impl Rwkv6 {
    /// The weights `{prefix}time_mix_*`, but for the last product.
    pub(super) fn load(
        w: &Loader,
        prefix: &str,
        spec: &RecurrentSpec,
        own: &Rwkv6Spec,
    ) -> Result<Self, LlmError> {
        let all = Weights { w, prefix };
        let (width, keys) = (spec.values(), spec.keys());
        let product = |name, outputs| all.product(name, outputs, width);
        Ok(Self {
            first_share: all.numbers("time_mix_lerp_x", &[width])?,
            shares: (
                product("time_mix_w1", SHARES * own.shares)?,
                all.numbers("time_mix_w2", &[SHARES, width, own.shares])?,
            ),
            addends: match all.has("time_mix_lerp_w") {
                true => ["w", "k", "v", "r", "g"]
                    .iter()
                    .map(|part| all.numbers(&format!("time_mix_lerp_{part}"), &[width]))
                    .collect::<Result<_, _>>()?,
                false => vec![all.numbers("time_mix_lerp_fused", &[SHARES, 1, 1, width])?],
            },
            products: [
                product("time_mix_key", keys)?,
                product("time_mix_value", keys)?,
                product("time_mix_receptance", width)?,
            ],
            gate: product("time_mix_gate", width)?,
            decays: all.narrow(
                ["time_mix_decay_w1", "time_mix_decay_w2", "time_mix_decay"],
                width,
                own.decays,
            )?,
            bonus: match own.has_bonus {
                true => Some((
                    all.numbers("time_mix_first", &[spec.heads, spec.key_width])?,
                    Norm::load(&all, width)?,
                )),
                false => None,
            },
            spec: spec.clone(),
        })
    }

    /// `x` `[b · t, width]` to `[b, t, width]`, before the last product.
    pub(super) fn forward(
        &self,
        x: &Tensor,
        pass: &Pass,
        cache: Option<&LayerCache>,
    ) -> RusTorchResult<Tensor> {
        let pair = Pair::new(x, pass, cache, 0)?;
        let (few, wide) = &self.shares;
        let few = pass.at_home(&few.forward(&pair.mixed(&self.first_share)?, pass)?)?;
        let (few, rank) = (few.tanh()?, few.size(2)? / SHARES);
        let mixed = |part: usize| {
            let addend = match &self.addends[..] {
                [all] => all.narrow(0, part, 1)?.flatten(0, 3)?,
                each => each[part].clone(),
            };
            let wide = wide.narrow(0, part, 1)?.squeeze(0)?;
            let share = few.narrow(2, part * rank, rank)?.linear(&wide, None)?;
            pair.mixed(&share.add(&addend)?)
        };
        let product = |linear: &Linear, part| pass.at_home(&linear.forward(&mixed(part)?, pass)?);
        let [keys, values, reads] = &self.products;
        let keys = self.of_heads(&product(keys, 1)?)?;
        let values = self.of_heads(&product(values, 2)?)?;
        let reads = by_heads(&product(reads, 3)?, self.spec.heads)?;
        let gate = product(&self.gate, 4)?;
        let decays = self.decays.forward(&mixed(0)?, pass, Tensor::tanh)?;
        let decays = by_heads(&decays.exp()?.neg()?.exp()?, self.spec.heads)?;
        match &self.bonus {
            Some((bonus, norm)) => {
                let operands = [&decays, &keys, &values, &reads];
                let y = pass.recurrence(&self.spec, operands, None, cache)?;
                let own = keys.mul(bonus)?.mul(&reads)?.sum(3, true)?;
                let y = norm.forward(&y.add(&values.mul(&own)?)?)?;
                y.mul(&gate.silu()?)
            }
            None => {
                let keys = keys.sub(&keys.mul(&decays)?)?;
                let operands = [&decays, &keys, &values, &reads];
                let y = pass.recurrence(&self.spec, operands, None, cache)?;
                let scale = (self.spec.key_width as f64).powf(-0.5);
                y.flatten(2, 3)?.mul(scale)?.mul(&gate.sigmoid()?)
            }
        }
    }

    /// Keys or values of groups for each head, `[b, t, heads, width]`. Heads of a group follow each other.
    fn of_heads(&self, x: &Tensor) -> RusTorchResult<Tensor> {
        let (heads, groups) = (self.spec.heads, self.spec.groups);
        let x = by_heads(x, groups)?;
        if heads == groups {
            return Ok(x);
        }
        let shape = [x.size(0)?, x.size(1)?, groups, heads / groups, x.size(3)?];
        x.unsqueeze(3)?.expand(shape)?.flatten(2, 3)
    }
}

/// `[b, t, heads · width]` as `[b, t, heads, width]`.
fn by_heads(x: &Tensor, heads: usize) -> RusTorchResult<Tensor> {
    let width = x.size(2)? / heads;
    x.reshape([x.size(0)?, x.size(1)?, heads, width])
}

/// The mixer of tokens of RWKV 7 ([Peng et al.](https://arxiv.org/abs/2503.14456)).
pub(super) struct Rwkv7 {
    spec: RecurrentSpec,
    /// Shares of the token before: of receptance, decays, keys, values, rates and gate; `[6, 1, 1, width]`, or 5.
    shares: Tensor,
    receptance: Linear,
    key: Linear,
    value: Linear,
    decays: Narrow,
    rates: Narrow,
    /// Shares of the first layer's values.
    values: Option<Narrow>,
    gate: Option<Narrow>,
    /// Factors of keys in the correction, of keys by their rates, and of a token's own value, `[width]`.
    corrected: Tensor,
    rated: Tensor,
    own: Tensor,
    norm: Option<Norm>,
}

impl Rwkv7 {
    /// The weights `{prefix}time_mix_*`, but for the last product.
    pub(super) fn load(
        w: &Loader,
        prefix: &str,
        spec: &RecurrentSpec,
        own: &Rwkv7Spec,
    ) -> Result<Self, LlmError> {
        let all = Weights { w, prefix };
        let width = spec.values();
        let narrow = |names, rank| all.narrow(names, width, rank);
        let product = |name| all.product(name, width, width);
        let numbers = |name| all.numbers(name, &[width]);
        let shares = if own.gate.is_some() { 6 } else { 5 };
        Ok(Self {
            shares: all.numbers("time_mix_lerp_fused", &[shares, 1, 1, width])?,
            receptance: product("time_mix_receptance")?,
            key: product("time_mix_key")?,
            value: product("time_mix_value")?,
            decays: narrow(["time_mix_w1", "time_mix_w2", "time_mix_w0"], own.decays)?,
            rates: narrow(["time_mix_a1", "time_mix_a2", "time_mix_a0"], own.rates)?,
            values: (own.values)
                .map(|rank| narrow(["time_mix_v1", "time_mix_v2", "time_mix_v0"], rank))
                .transpose()?,
            gate: (own.gate)
                .map(|rank| narrow(["time_mix_g1", "time_mix_g2", ""], rank))
                .transpose()?,
            corrected: numbers("time_mix_k_k")?,
            rated: numbers("time_mix_k_a")?,
            own: numbers("time_mix_r_k")?,
            norm: match own.norm {
                Need::Optional if !all.has("time_mix_ln") => None,
                Need::Absent => None,
                Need::Optional | Need::Required => Some(Norm::load(&all, width)?),
            },
            spec: spec.clone(),
        })
    }

    /// `x` `[b · t, width]` to `[b, t, width]`, before the last product.
    pub(super) fn forward(
        &self,
        x: &Tensor,
        pass: &Pass,
        cache: Option<&LayerCache>,
    ) -> RusTorchResult<Tensor> {
        let (heads, width) = (self.spec.heads, self.spec.key_width);
        let pair = Pair::new(x, pass, cache, 0)?;
        let mixed = |part| pair.mixed(&self.shares.narrow(0, part, 1)?.flatten(0, 3)?);
        let product = |linear: &Linear, part| pass.at_home(&linear.forward(&mixed(part)?, pass)?);
        let same = |x: &Tensor| Ok(x.clone());
        let reads = product(&self.receptance, 0)?;
        let decays = self.decays.forward(&mixed(1)?, pass, Tensor::tanh)?;
        let decays = decays.sigmoid()?.mul(STRONGEST)?.exp()?;
        let keys = product(&self.key, 2)?;
        let own = product(&self.value, 3)?;
        let first = pass.first_values(&own)?;
        let values = match &self.values {
            Some(shares) => {
                let share = shares.forward(&mixed(3)?, pass, same)?.sigmoid()?;
                own.add(&first.sub(&own)?.mul(&share)?)?
            }
            None => own,
        };
        let rates = self.rates.forward(&mixed(4)?, pass, same)?.sigmoid()?;
        // Divided by their length.
        let corrected = by_heads(&keys.mul(&self.corrected)?, heads)?;
        let corrected = corrected
            .rms_norm([width], None, LENGTH * LENGTH / width as f64)?
            .mul((width as f64).powf(-0.5))?;
        let rated = keys.mul(&self.rated)?;
        let keys = keys.add(&rates.mul(&rated)?.sub(&rated)?)?;
        let split = |x: &Tensor| by_heads(x, heads);
        let [reads, decays, keys] = [split(&reads)?, split(&decays)?, split(&keys)?];
        let values = split(&values)?;
        let written = corrected.mul(&split(&rates)?)?;
        let correction = [&corrected.neg()?, &written];
        let operands = [&decays, &keys, &values, &reads];
        let y = pass.recurrence(&self.spec, operands, Some(correction), cache)?;
        let y = match &self.norm {
            Some(norm) => norm.forward(&y)?,
            None => y.flatten(2, 3)?,
        };
        let factors = self.own.reshape([heads, width])?;
        let factor = keys.mul(&reads)?.mul(&factors)?.sum(3, true)?;
        let y = y.add(&values.mul(&factor)?.flatten(2, 3)?)?;
        match &self.gate {
            Some(gate) => y.mul(&gate.forward(&mixed(5)?, pass, Tensor::sigmoid)?),
            None => Ok(y),
        }
    }
}

/// RWKV's feed-forward part.
pub(super) struct ChannelMix {
    share: Tensor,
    key: Linear,
    value: Linear,
    /// Share and product of the gate.
    gate: Option<(Tensor, Linear)>,
}

impl ChannelMix {
    /// The weights `{prefix}channel_mix_*`.
    pub(super) fn load(w: &Loader, prefix: &str, spec: &ChannelMixSpec) -> Result<Self, LlmError> {
        let all = Weights { w, prefix };
        let (inputs, width) = (spec.inputs, spec.width);
        Ok(Self {
            share: all.numbers("channel_mix_lerp_k", &[inputs])?,
            key: all.product("channel_mix_key", width, inputs)?,
            value: all.product("channel_mix_value", inputs, width)?,
            gate: match spec.has_gate {
                true => Some((
                    all.numbers("channel_mix_lerp_r", &[inputs])?,
                    all.product("channel_mix_receptance", inputs, inputs)?,
                )),
                false => None,
            },
        })
    }

    /// `x` `[b · t, width]` to the same shape.
    pub(super) fn forward(
        &self,
        x: &Tensor,
        pass: &Pass,
        cache: Option<&LayerCache>,
    ) -> RusTorchResult<Tensor> {
        let pair = Pair::new(x, pass, cache, CHANNELS)?;
        let product = |linear: &Linear, x: &Tensor| pass.at_home(&linear.forward(x, pass)?);
        let keys = product(&self.key, &pair.mixed(&self.share)?)?;
        let y = product(&self.value, &keys.relu()?.square()?)?;
        let y = match &self.gate {
            Some((share, linear)) => {
                let gate = product(linear, &pair.mixed(share)?)?;
                y.mul(&gate.sigmoid()?)?
            }
            None => y,
        };
        y.reshape(x.shape())
    }
}
