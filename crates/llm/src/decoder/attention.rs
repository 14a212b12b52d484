//! Grouped-query self-attention.

use rustorch_ir::ops::Rope;
use rustorch_tensor::{AttentionOptions, RusTorchResult, Tensor};

use super::distances::Distances;
use super::indexer::Asked;
use super::latent::Latent;
use super::linear::{Linear, Scaled, times};
use super::norm::{HeadNorm, Norm};
use super::pass::{Attended, Pass};
use crate::LlmError;
use crate::kv_cache::LayerCache;
use crate::spec::{
    Activation, AttentionSpec, IndexerSpec, KeysValues, Need, RopeFactors, RopeSpec, Window,
};
use crate::weights::Loader;

/// The products that make queries, keys and values: three, or one of all. Some layers have fewer.
enum Qkv {
    /// Queries, for the keys and values of the layer at this place.
    Queries(Box<Linear>, usize),
    /// Queries, and keys that are values, too.
    KeysAsValues(Box<[Linear; 2]>),
    Split(Box<[Linear; 3]>),
    Fused(Box<(Linear, [Part; 3])>),
    Latent(Box<Latent>),
}

/// Keys and values of a layer's input, or those of another layer, and the operands of the choice among them.
struct Keyed {
    source: KeyedSource,
    asked: Option<Asked>,
}

/// Keys and values of a layer's input, or the layer whose they are.
enum KeyedSource {
    Own([Tensor; 2]),
    By(usize),
}

impl Keyed {
    fn own(own: [Tensor; 2]) -> Self {
        Self {
            source: KeyedSource::Own(own),
            asked: None,
        }
    }

    /// The part of the token at this place among all.
    fn row(&self, index: usize) -> RusTorchResult<Self> {
        let row = |x: &Tensor| x.narrow(-2, index, 1);
        Ok(Self {
            source: match &self.source {
                KeyedSource::Own([k, v]) => KeyedSource::Own([row(k)?, row(v)?]),
                KeyedSource::By(layer) => KeyedSource::By(*layer),
            },
            asked: (self.asked.as_ref())
                .map(|asked| asked.row(index))
                .transpose()?,
        })
    }
}

/// One of the parts of a product that makes all three.
struct Part {
    outputs: usize,
    /// Its bias, where the file has biases apart.
    bias: Option<Tensor>,
}

impl Qkv {
    /// `attn_qkv` where the file has it, else `attn_q`, `attn_k` and `attn_v`.
    fn load(
        w: &Loader,
        prefix: &str,
        outputs: [usize; 3],
        inputs: usize,
        spec: &AttentionSpec,
    ) -> Result<Self, LlmError> {
        if let Some(latent) = &spec.latent {
            let latent = Latent::load(
                w,
                prefix,
                latent,
                spec.indexer.as_ref(),
                [spec.heads, inputs],
            )?;
            return Ok(Self::Latent(Box::new(latent)));
        }
        let name = |part: &str| format!("{prefix}attn_{part}");
        let scaled = match spec.scales {
            true => Scaled::BeforeBias,
            false => Scaled::Never,
        };
        let load = |part, outputs| {
            let linear = Linear::load(w, &name(part), outputs, inputs, scaled)?;
            Ok::<_, LlmError>(linear.with_own_bias(spec.biases))
        };
        let [q, k, v] = outputs;
        if let KeysValues::Of(layer) = spec.source {
            return Ok(Self::Queries(Box::new(load("q", q)?), layer));
        }
        let has = |part| w.has(&name(part));
        if spec.keys_as_values && !has("v.weight") && !has("qkv.weight") {
            let both = [load("q", q)?, load("k", k)?];
            return Ok(Self::KeysAsValues(Box::new(both)));
        }
        if !w.has(&name("qkv.weight")) {
            let split = [load("q", q)?, load("k", k)?, load("v", v)?];
            return Ok(Self::Split(Box::new(split)));
        }
        let fused = load("qkv", q + k + v)?;
        let has_own = !spec.biases || w.has(&name("qkv.bias"));
        let part = |part, outputs| {
            let bias = match has_own {
                true => None,
                false => w.opt_f32(&name(part), &[outputs])?,
            };
            Ok::<_, LlmError>(Part { outputs, bias })
        };
        let parts = [part("q.bias", q)?, part("k.bias", k)?, part("v.bias", v)?];
        Ok(Self::Fused(Box::new((fused, parts))))
    }

    /// `x` `[t, width]` to queries, keys and values `[t, heads · head width]`, beside the cache.
    fn forward(&self, x: &Tensor, pass: &Pass) -> RusTorchResult<(Tensor, Keyed)> {
        let product = |linear: &Linear| pass.at_home(&linear.forward(x, pass)?);
        match self {
            Self::Queries(queries, layer) => {
                let keyed = Keyed {
                    source: KeyedSource::By(*layer),
                    asked: None,
                };
                Ok((product(queries)?, keyed))
            }
            Self::KeysAsValues(both) => {
                let [q, k] = &**both;
                let keys = product(k)?;
                Ok((product(q)?, Keyed::own([keys.clone(), keys])))
            }
            Self::Split(split) => {
                let [q, k, v] = &**split;
                Ok((product(q)?, Keyed::own([product(k)?, product(v)?])))
            }
            Self::Fused(fused) => {
                let (all, [q, k, v]) = &**fused;
                let y = product(all)?;
                // Biases are added here and not joined when they are loaded: training changes them.
                let part = |from, part: &Part| {
                    let y = y.narrow(1, from, part.outputs)?;
                    match &part.bias {
                        Some(bias) => y.add(bias),
                        None => Ok(y),
                    }
                };
                let [at_k, at_v] = [q.outputs, q.outputs + k.outputs];
                Ok((part(0, q)?, Keyed::own([part(at_k, k)?, part(at_v, v)?])))
            }
            Self::Latent(latent) => {
                let ([q, own @ ..], asked) = latent.forward(x, pass)?;
                let source = KeyedSource::Own(own);
                Ok((q, Keyed { source, asked }))
            }
        }
    }
}

/// Rotary embedding with the model's frequencies.
struct Rotary {
    op: Rope,
    /// Divisors of the frequencies, whatever the context's size.
    factors: Option<Tensor>,
    /// Divisors for contexts within the original one and beyond it.
    by_context: Option<[Tensor; 2]>,
    original_context: usize,
}

impl Rotary {
    fn load(w: &Loader, spec: &RopeSpec) -> Result<Self, LlmError> {
        let read = |name: &str| match spec.factors {
            RopeFactors::File => {
                let factors = w.opt_f32(name, &[spec.factor_count])?;
                let own = |factors: Tensor| factors.narrow(0, 0, spec.op.dims / 2);
                Ok::<_, LlmError>(factors.map(own).transpose()?)
            }
            RopeFactors::None => Ok(None),
        };
        let by_context = [
            read("rope_factors_short.weight")?,
            read("rope_factors_long.weight")?,
        ];
        Ok(Self {
            op: spec.op.clone(),
            factors: read("rope_freqs.weight")?,
            by_context: match by_context {
                [Some(short), Some(long)] => Some([short, long]),
                _ => None,
            },
            original_context: spec.original_context,
        })
    }

    /// `x` `[heads, t, width]`, in a context of this many tokens.
    fn forward(&self, x: &Tensor, pass: &Pass, context: usize) -> RusTorchResult<Tensor> {
        let by_context = self.by_context.as_ref();
        let by_context = by_context.map(|f| &f[usize::from(context > self.original_context)]);
        x.rope(
            pass.positions,
            self.factors.as_ref().or(by_context),
            &self.op,
        )
    }
}

/// A product of the layer's input that multiplies heads or elements of the attention's result.
struct OutputGate {
    product: Linear,
    activation: Activation,
    is_by_head: bool,
}

/// Grouped-query self-attention.
pub(crate) struct Attention {
    spec: AttentionSpec,
    qkv: Qkv,
    query_norm: Option<HeadNorm>,
    key_norm: Option<HeadNorm>,
    value_norm: Option<Norm>,
    rotary: Option<Rotary>,
    distances: Option<Distances>,
    sinks: Option<Tensor>,
    gate: Option<OutputGate>,
    inner_norm: Option<Norm>,
    output: Linear,
}

impl Attention {
    /// The weights `{prefix}attn_*`.
    pub(crate) fn load(
        w: &Loader,
        prefix: &str,
        spec: &AttentionSpec,
        width: usize,
    ) -> Result<Self, LlmError> {
        let (heads, kv_heads) = (spec.heads, spec.kv_heads);
        let (keys, values) = (spec.key_width, spec.value_width);
        let norm = |norm: &Option<_>, heads| {
            let load = |norm| HeadNorm::load(w, prefix, norm, heads, keys);
            norm.as_ref().map(load).transpose()
        };
        let sinks = format!("{prefix}attn_sinks.weight");
        let results = heads * spec.result_width();
        // T5 has another name.
        let [short, full] = ["attn_o", "attn_output"].map(|name| format!("{prefix}{name}"));
        let output = match w.has(&format!("{short}.weight")) {
            true => short,
            false => full,
        };
        let queries = match spec.gated_queries {
            true => 2 * heads * keys,
            false => heads * keys,
        };
        let outputs = [queries, kv_heads * keys, kv_heads * values];
        let qkv = Qkv::load(w, prefix, outputs, width, spec)?;
        Ok(Self {
            qkv,
            query_norm: norm(&spec.query_norm, heads)?,
            key_norm: match spec.source {
                KeysValues::Of(_) => None,
                KeysValues::Own | KeysValues::Lent => norm(&spec.key_norm, kv_heads)?,
            },
            value_norm: Norm::opt(w, prefix, spec.value_norm.as_ref(), values)?,
            rotary: (spec.rope.as_ref().map(|rope| Rotary::load(w, rope))).transpose()?,
            distances: (spec.distances.as_ref())
                .map(|distances| Distances::load(w, distances, heads))
                .transpose()?,
            sinks: match spec.sinks {
                Need::Required => Some(w.f32(&sinks, &[heads])?),
                Need::Optional => w.opt_f32(&sinks, &[heads])?,
                Need::Absent => None,
            },
            gate: Self::load_gate(w, prefix, spec, width)?,
            inner_norm: Norm::opt(w, prefix, spec.inner_norm.as_ref(), results)?,
            output: Linear::load(w, &output, width, results, Scaled::BeforeBias)?
                .with_own_bias(spec.out_bias),
            spec: spec.clone(),
        })
    }

    fn load_gate(
        w: &Loader,
        prefix: &str,
        spec: &AttentionSpec,
        width: usize,
    ) -> Result<Option<OutputGate>, LlmError> {
        let name = format!("{prefix}attn_gate");
        let rows = w.rows(&format!("{name}.weight"));
        let (activation, need) = match spec.gate {
            Some(gate) => gate,
            None => return Ok(None),
        };
        if need == Need::Optional && rows.is_none() {
            return Ok(None);
        }
        let is_by_head = rows == Some(spec.heads);
        let outputs = match is_by_head {
            true => spec.heads,
            false => spec.heads * spec.result_width(),
        };
        Ok(Some(OutputGate {
            product: Linear::load(w, &name, outputs, width, Scaled::Never)?,
            activation,
            is_by_head,
        }))
    }

    /// `x` `[b · t, width]` to the same shape; keys and values go to the cache, if there is one.
    pub(crate) fn forward(
        &self,
        x: &Tensor,
        pass: &Pass,
        cache: Option<&LayerCache>,
    ) -> RusTorchResult<Tensor> {
        let spec = &self.spec;
        let rows = x.shape()[0];
        let (q, own) = self.qkv.forward(x, pass)?;
        let (q, inner_gate) = self.ungated(q)?;
        let q = self.heads(q, spec.heads, self.query_norm.as_ref(), pass)?;
        let q = match &spec.temperature {
            Some(temperature) => q.mul(&pass.temperature(temperature)?)?,
            None => q,
        };
        let own = Keyed {
            source: match own.source {
                KeyedSource::Own(own) => KeyedSource::Own(self.keys_values(own, pass)?),
                by => by,
            },
            ..own
        };
        let y = match pass.rows() {
            [] => self.mixed(&q, &own, pass, cache)?,
            rows => {
                let each = rows.iter().enumerate();
                let mixed = each.map(|(i, row)| {
                    let own = own.row(i)?;
                    self.mixed(&q.narrow(-2, i, 1)?, &own, &row.pass, row.cache())
                });
                let mixed = mixed.collect::<RusTorchResult<Vec<Tensor>>>()?;
                Tensor::cat(&mixed, -2)?
            }
        };
        let y = y.transpose(-3, -2)?;
        let y = match y.rank() {
            3 => y,
            _ => y.reshape([rows, spec.heads, spec.value_width])?,
        };
        let y = match &self.qkv {
            Qkv::Latent(latent) => latent.results(y, pass)?,
            _ => y,
        };
        let y = match inner_gate {
            Some(gate) => y.mul(&gate.sigmoid()?)?,
            None => y,
        };
        let y = match &self.gate {
            Some(gate) => {
                let factor = gate.activation.of(&gate.product.forward(x, pass)?)?;
                match gate.is_by_head {
                    true => y.mul(&factor.unsqueeze(2)?)?,
                    false => y.mul(&factor.reshape(y.shape())?)?,
                }
            }
            None => y,
        };
        let y = y.reshape([rows, spec.heads * spec.result_width()])?;
        let y = Norm::apply(self.inner_norm.as_ref(), y)?;
        times(self.output.forward(&y, pass)?, spec.out_scale)
    }

    /// Queries `[b · t, heads · width]` of their product, and the gates `[b · t, heads, width]` that it has beside
    /// them.
    fn ungated(&self, q: Tensor) -> RusTorchResult<(Tensor, Option<Tensor>)> {
        let (heads, width) = (self.spec.heads, self.spec.key_width);
        if !self.spec.gated_queries {
            return Ok((q, None));
        }
        let rows = q.size(0)?;
        let both = q.reshape([rows, heads, 2 * width])?;
        let queries = both.narrow(2, 0, width)?.reshape([rows, heads * width])?;
        Ok((queries, Some(both.narrow(2, width, width)?)))
    }

    /// The result, with keys and values of one sequence, for queries `[…, heads, t, key width]`.
    fn mixed(
        &self,
        q: &Tensor,
        own: &Keyed,
        pass: &Pass,
        cache: Option<&LayerCache>,
    ) -> RusTorchResult<Tensor> {
        let attended = match &own.source {
            KeyedSource::Own(own) => Self::stored(own, pass, cache)?,
            KeyedSource::By(layer) => pass.lent(*layer),
        };
        if self.spec.source == KeysValues::Lent {
            pass.lend(&attended);
        }
        let chosen = self.chosen(own.asked.as_ref(), &attended.keys, pass)?;
        self.attend(q, &attended, chosen, pass)
    }

    /// The addend to scores of keys that are chosen, unless all are seen.
    fn chosen(
        &self,
        asked: Option<&Asked>,
        keys: &Tensor,
        pass: &Pass,
    ) -> RusTorchResult<Option<Tensor>> {
        if self.spec.indexer == Some(IndexerSpec::Before) {
            return pass.chosen();
        }
        let indexer = match &self.qkv {
            Qkv::Latent(latent) => latent.indexer(),
            _ => None,
        };
        let Some((indexer, asked)) = indexer.zip(asked) else {
            return Ok(None);
        };
        let mask = indexer.mask(asked, keys, pass)?;
        pass.choose(mask.as_ref());
        Ok(mask)
    }

    /// Keys and values `[b · t, kv heads · width]` as `[…, kv heads, t, width]`, normed and rotated.
    fn keys_values(&self, [k, v]: [Tensor; 2], pass: &Pass) -> RusTorchResult<[Tensor; 2]> {
        let spec = &self.spec;
        let k = self.heads(k, spec.kv_heads, self.key_norm.as_ref(), pass)?;
        let v = pass.by_sequence(&self.clamped(v)?, [spec.kv_heads, spec.value_width])?;
        let v = Norm::apply(self.value_norm.as_ref(), v)?.transpose(-3, -2)?;
        Ok([k, v])
    }

    /// Keys and values for attention; they go to the cache, if there is one.
    fn stored(
        [k, v]: &[Tensor; 2],
        pass: &Pass,
        cache: Option<&LayerCache>,
    ) -> RusTorchResult<Attended> {
        let row = cache.map(|cache| pass.row(cache)).transpose()?;
        let (keys, values) = match cache.zip(row.as_ref()) {
            Some((LayerCache { keys, values, .. }, row)) => (
                keys.update_slice_(k, 1, row)?,
                values.update_slice_(v, 1, row)?,
            ),
            None => (k.clone(), v.clone()),
        };
        Ok(Attended {
            keys,
            values,
            row,
            window: cache.and_then(|cache| cache.window),
        })
    }

    /// Queries or keys `[b · t, heads · width]`, normed and rotated: `[…, heads, t, width]`.
    fn heads(
        &self,
        x: Tensor,
        heads: usize,
        norm: Option<&HeadNorm>,
        pass: &Pass,
    ) -> RusTorchResult<Tensor> {
        let is_first = !self.spec.norm_after_rope;
        let mut x = self.clamped(x)?;
        if let Some(norm) = norm.filter(|norm| norm.is_over_all()) {
            x = norm.forward(&x, false)?;
        }
        let norm = norm.filter(|norm| !norm.is_over_all());
        let mut x = pass.by_sequence(&x, [heads, self.spec.key_width])?;
        if let Some(norm) = norm.filter(|_| is_first) {
            x = norm.forward(&x, false)?;
        }
        x = x.transpose(-3, -2)?;
        if let Some(rotary) = &self.rotary {
            x = rotary.forward(&x, pass, pass.context()?)?;
        }
        match norm.filter(|_| !is_first) {
            Some(norm) => norm.forward(&x, true),
            None => Ok(x),
        }
    }

    fn clamped(&self, x: Tensor) -> RusTorchResult<Tensor> {
        match self.spec.clamp {
            Some(bound) => x.clamp(-bound, bound),
            None => Ok(x),
        }
    }

    /// Queries `[…, heads, t, key width]` to `[…, heads, t, value width]`.
    /// `chosen` is an addend to scores.
    fn attend(
        &self,
        q: &Tensor,
        attended: &Attended,
        chosen: Option<Tensor>,
        pass: &Pass,
    ) -> RusTorchResult<Tensor> {
        let spec = &self.spec;
        let (k, v) = (&attended.keys, &attended.values);
        let mask = pass.mask(spec, k.size(-2)?, attended.window)?;
        let mask = match &self.distances {
            Some(distances) => {
                let bias = pass.at_home(&distances.bias(q.size(-2)?)?)?;
                Some(mask.map_or(Ok(bias.clone()), |mask| mask.add(&bias))?)
            }
            None => mask,
        };
        let mask = match (mask, chosen) {
            (Some(mask), Some(chosen)) => Some(mask.add(&chosen)?),
            (mask, chosen) => mask.or(chosen),
        };
        let options = AttentionOptions {
            mask: mask.as_ref(),
            is_causal: spec.causal,
            scale: Some(spec.scale),
            soft_cap: spec.soft_cap,
            past: attended.row.as_ref(),
            window: match spec.window {
                Some(Window::Sliding(n)) => Some(n),
                _ => None,
            },
            ..AttentionOptions::default()
        };
        let Some(sinks) = &self.sinks else {
            return q.scaled_dot_product_attention(k, v, options);
        };
        // A sink adds to the weights' total alone: by how much all shrink follows from the total.
        let (y, totals) = q.scaled_dot_product_attention_with_logsumexp(k, v, options)?;
        let share = totals.sub(&sinks.unsqueeze(1)?)?.sigmoid()?;
        y.mul(&share.unsqueeze(-1)?)
    }
}
