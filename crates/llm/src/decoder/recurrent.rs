//! Recurrent mixers: state space models, delta nets, short convolutions, and RWKV.

use rustorch_tensor::{RusTorchResult, Tensor};

use super::convolution::Convolution;
use super::linear::{Linear, Scaled};
use super::linear_attention::{Kda, Lightning};
use super::norm::{HeadNorm, Norm};
use super::pass::Pass;
use super::rwkv::{Rwkv6, Rwkv7};
use crate::LlmError;
use crate::kv_cache::LayerCache;
use crate::spec::{HeadNormSpec, Need, NormSpec, NormedOver, RecurrentKind, RecurrentSpec};
use crate::weights::Loader;

/// The weights that one kind has besides the convolution and the last product.
enum Parts {
    Mamba {
        input: Linear,
        /// Time steps, keys and reads of the convolution's result.
        selection: Linear,
        time_steps: Linear,
        /// Norms of time steps, keys and reads.
        norms: Option<Box<[Norm; 3]>>,
        /// Decays `[heads, key width]`, or `[heads]`.
        decays: Tensor,
        /// `[heads]`
        skip: Tensor,
        by_head: bool,
    },
    Mamba2 {
        input: Linear,
        /// `[heads]`
        time_bias: Tensor,
        /// `[heads]`
        decays: Tensor,
        /// `[heads, 1]`
        skip: Tensor,
        norm: Option<HeadNorm>,
    },
    DeltaNet {
        queries_keys_values: Linear,
        gate: Linear,
        /// The product of both gates of the state, or one for each: what is written, what is kept.
        state_gates: Vec<Linear>,
        /// `[heads]`
        time_bias: Tensor,
        /// `[heads]`
        decays: Tensor,
        norm: Norm,
    },
    ShortConvolution {
        input: Linear,
    },
    Kda(Box<Kda>),
    Lightning(Box<Lightning>),
    Rwkv6(Box<Rwkv6>),
    Rwkv7(Box<Rwkv7>),
}

/// A recurrent mixer.
pub(crate) struct Recurrent {
    spec: RecurrentSpec,
    /// `None` for kinds that have their own, or none.
    convolution: Option<Convolution>,
    parts: Parts,
    output: Linear,
}

impl Recurrent {
    /// The weights `{prefix}ssm_*`, `{prefix}shortconv.*` or `{prefix}time_mix_*`.
    pub(crate) fn load(
        w: &Loader,
        prefix: &str,
        spec: &RecurrentSpec,
        width: usize,
    ) -> Result<Self, LlmError> {
        let scaled = match spec.scales {
            true => Scaled::BeforeBias,
            false => Scaled::Never,
        };
        let load = |name: &str, [outputs, inputs]: [usize; 2], scaled| {
            Linear::load(w, &format!("{prefix}{name}"), outputs, inputs, scaled)
        };
        let product = |name: &str, outputs, inputs| load(name, [outputs, inputs], scaled);
        let numbers = |name: &str, shape: &[usize]| w.f32(&format!("{prefix}{name}"), shape);
        let (heads, values, keys) = (spec.heads, spec.values(), spec.keys());
        let parts = match &spec.kind {
            RecurrentKind::Mamba {
                rank,
                norm,
                by_head,
            } => Parts::Mamba {
                input: product("ssm_in", 2 * values, width)?,
                selection: load("ssm_x", [rank + 2 * spec.key_width, values], Scaled::Never)?,
                time_steps: load("ssm_dt", [heads, *rank], Scaled::Never)?,
                norms: (norm
                    .map(|norm| Self::load_norms(w, prefix, norm, [*rank, spec.key_width])))
                .transpose()?,
                decays: match by_head {
                    true => numbers("ssm_a", &[heads])?,
                    false => numbers("ssm_a", &[heads, spec.key_width])?,
                },
                skip: numbers("ssm_d", &[heads])?,
                by_head: *by_head,
            },
            RecurrentKind::Mamba2 { norm } => Parts::Mamba2 {
                input: product("ssm_in", values + spec.channels() + heads, width)?,
                time_bias: numbers("ssm_dt.bias", &[heads])?,
                decays: numbers("ssm_a", &[heads, 1])?.squeeze(1)?,
                skip: numbers("ssm_d", &[heads, 1])?,
                norm: norm
                    .filter(|norm| {
                        let name = format!("{prefix}{}.weight", norm.name);
                        norm.weight == Need::Required || w.has(&name)
                    })
                    .map(|norm| {
                        let over = NormedOver::HeadOwnWeights;
                        let norm = HeadNormSpec { norm, over };
                        HeadNorm::load(w, prefix, &norm, spec.groups, values / spec.groups)
                    })
                    .transpose()?,
            },
            RecurrentKind::DeltaNet { norm, is_grouped } => Parts::DeltaNet {
                queries_keys_values: product("attn_qkv", values + 2 * keys, width)?,
                gate: product("attn_gate", values, width)?,
                state_gates: match is_grouped {
                    true => vec![product("ssm_ba", 2 * heads, width)?],
                    false => vec![
                        product("ssm_beta", heads, width)?,
                        product("ssm_alpha", heads, width)?,
                    ],
                },
                time_bias: numbers("ssm_dt.bias", &[heads])?,
                decays: numbers("ssm_a", &[heads])?,
                norm: Norm::load(w, prefix, norm, spec.value_width)?,
            },
            RecurrentKind::ShortConvolution => Parts::ShortConvolution {
                input: product("shortconv.in_proj", 3 * values, width)?,
            },
            RecurrentKind::Kda { norm } => {
                Parts::Kda(Box::new(Kda::load(w, prefix, spec, norm, width)?))
            }
            RecurrentKind::Lightning { norm, slope } => {
                let own = Lightning::load(w, prefix, spec, (norm, *slope), width)?;
                Parts::Lightning(Box::new(own))
            }
            RecurrentKind::Rwkv6(own) => Parts::Rwkv6(Box::new(Rwkv6::load(w, prefix, spec, own)?)),
            RecurrentKind::Rwkv7(own) => Parts::Rwkv7(Box::new(Rwkv7::load(w, prefix, spec, own)?)),
        };
        let (convolution, output) = match spec.kind {
            RecurrentKind::ShortConvolution => (Some("shortconv.conv"), "shortconv.out_proj"),
            RecurrentKind::Kda { .. } | RecurrentKind::Lightning { .. } => (None, "attn_output"),
            RecurrentKind::Rwkv6(_) | RecurrentKind::Rwkv7(_) => (None, "time_mix_output"),
            _ => (Some("ssm_conv1d"), "ssm_out"),
        };
        Ok(Self {
            convolution: convolution
                .map(|name| Convolution::load(w, &format!("{prefix}{name}"), spec))
                .transpose()?,
            parts,
            output: product(output, width, values)?,
            spec: spec.clone(),
        })
    }

    /// Norms of Mamba's time steps, keys and reads.
    fn load_norms(
        w: &Loader,
        prefix: &str,
        norm: NormSpec,
        [rank, width]: [usize; 2],
    ) -> Result<Box<[Norm; 3]>, LlmError> {
        let load = |name, width| Norm::load(w, prefix, &NormSpec { name, ..norm }, width);
        Ok(Box::new([
            load("ssm_dt_norm", rank)?,
            load("ssm_b_norm", width)?,
            load("ssm_c_norm", width)?,
        ]))
    }

    /// `x` `[b · t, width]` to the same shape. The state goes to the cache, if there is one.
    pub(crate) fn forward(
        &self,
        x: &Tensor,
        pass: &Pass,
        cache: Option<&LayerCache>,
    ) -> RusTorchResult<Tensor> {
        let rows = x.size(0)?;
        let product = |linear: &Linear| {
            let y = pass.at_home(&linear.forward(x, pass)?)?;
            pass.in_sequences(&y)
        };
        let values = self.spec.values();
        let y = match &self.parts {
            Parts::Mamba { input, by_head, .. } => {
                let both = product(input)?;
                let [own, gate] = match by_head {
                    true => self.by_heads(&both)?,
                    false => [both.narrow(2, 0, values)?, both.narrow(2, values, values)?],
                };
                let gate = gate.silu()?;
                let x = self.convolved(&own, pass, cache)?;
                self.selective(&x.silu()?, pass, cache)?.mul(&gate)?
            }
            Parts::Mamba2 { input, norm, .. } => {
                let all = product(input)?;
                let channels = self.spec.channels();
                let gate = all.narrow(2, 0, values)?.silu()?;
                let x = self.convolved(&all.narrow(2, values, channels)?, pass, cache)?;
                let times = all.narrow(2, values + channels, self.spec.heads)?;
                let y = self.state_space(&x.silu()?, &times, pass, cache)?;
                let y = y.mul(&gate)?;
                match norm {
                    Some(norm) => {
                        let groups = self.spec.groups;
                        norm.forward(&y.reshape([rows, groups, values / groups])?, false)?
                    }
                    None => y,
                }
            }
            Parts::DeltaNet {
                queries_keys_values,
                gate,
                state_gates,
                norm,
                ..
            } => {
                let x = self.convolved(&product(queries_keys_values)?, pass, cache)?;
                let gates = state_gates.iter().map(product);
                let gates = gates.collect::<RusTorchResult<Vec<_>>>()?;
                let y = self.delta_net(&x.silu()?, &gates, pass, cache)?;
                let gate = product(gate)?.silu()?.reshape(y.shape())?;
                norm.forward(&y)?.mul(&gate)?
            }
            Parts::ShortConvolution { input } => {
                let all = product(input)?;
                let part = |at: usize| all.narrow(2, at * values, values);
                let x = self.convolved(&part(0)?.mul(&part(2)?)?, pass, cache)?;
                part(1)?.mul(&x)?
            }
            Parts::Kda(mix) => mix.forward(x, pass, cache)?,
            Parts::Lightning(mix) => mix.forward(x, pass, cache)?,
            Parts::Rwkv6(mix) => mix.forward(x, pass, cache)?,
            Parts::Rwkv7(mix) => mix.forward(x, pass, cache)?,
        };
        self.output.forward(&y.reshape([rows, values])?, pass)
    }

    /// The convolution of `x` `[b, t, channels]` and the inputs before it.
    fn convolved(
        &self,
        x: &Tensor,
        pass: &Pass,
        cache: Option<&LayerCache>,
    ) -> RusTorchResult<Tensor> {
        let Some(convolution) = &self.convolution else {
            return Ok(x.clone());
        };
        convolution.forward(x, pass, cache)
    }

    /// Each head's gate, then its input, `[b, t, heads · 2 · width]`, as inputs and gates `[b, t, values]`.
    fn by_heads(&self, both: &Tensor) -> RusTorchResult<[Tensor; 2]> {
        let (heads, width) = (self.spec.heads, self.spec.value_width);
        let [batch, times] = [both.size(0)?, both.size(1)?];
        let both = both.reshape([batch, times, heads, 2 * width])?;
        let part = |at| {
            let part = both.narrow(3, at, width)?;
            part.reshape([batch, times, heads * width])
        };
        Ok([part(width)?, part(0)?])
    }

    /// Mamba: `x` `[b, t, values]` to the same shape.
    fn selective(
        &self,
        x: &Tensor,
        pass: &Pass,
        cache: Option<&LayerCache>,
    ) -> RusTorchResult<Tensor> {
        let Parts::Mamba {
            selection,
            time_steps,
            norms,
            decays,
            skip,
            by_head,
            ..
        } = &self.parts
        else {
            return Ok(x.clone());
        };
        let all = pass.at_home(&selection.forward(x, pass)?)?;
        let width = self.spec.key_width;
        let rank = all.size(2)? - 2 * width;
        // Time steps, keys and reads.
        let places = match by_head {
            true => [2 * width, 0, width],
            false => [0, rank, rank + width],
        };
        let mut parts = [
            all.narrow(2, places[0], rank)?,
            all.narrow(2, places[1], width)?,
            all.narrow(2, places[2], width)?,
        ];
        if let Some(norms) = norms {
            for (part, norm) in parts.iter_mut().zip(norms.iter()) {
                *part = norm.forward(part)?;
            }
        }
        let [steps, keys, reads] = parts;
        let steps = pass.at_home(&time_steps.forward(&steps, pass)?)?;
        let steps = steps.softplus(1.0, 20.0)?.unsqueeze(3)?;
        let spec = &self.spec;
        let own = [x.size(0)?, x.size(1)?, spec.heads, spec.value_width];
        let own = x.reshape(own)?;
        let (keys, reads) = (keys.unsqueeze(2)?, reads.unsqueeze(2)?);
        let decays = match by_head {
            true => decays.unsqueeze(1)?,
            false => decays.clone(),
        };
        let decays = steps.mul(&decays)?.exp()?;
        let operands = [&decays, &keys, &own.mul(&steps)?, &reads];
        let y = pass.recurrence(spec, operands, None, cache)?;
        let y = y.add(&own.mul(&skip.unsqueeze(1)?)?)?;
        y.reshape(x.shape())
    }

    /// Mamba 2: `x` `[b, t, channels]` and time steps `[b, t, heads]` to `[b, t, values]`.
    fn state_space(
        &self,
        x: &Tensor,
        steps: &Tensor,
        pass: &Pass,
        cache: Option<&LayerCache>,
    ) -> RusTorchResult<Tensor> {
        let Parts::Mamba2 {
            time_bias,
            decays,
            skip,
            ..
        } = &self.parts
        else {
            return Ok(x.clone());
        };
        let spec = &self.spec;
        let (values, keys) = (spec.values(), spec.keys());
        let [batch, times] = [x.size(0)?, x.size(1)?];
        let shape = [batch, times, spec.heads, spec.value_width];
        let own = x.narrow(2, 0, values)?.reshape(shape)?;
        let of_heads = |at| self.of_heads(&x.narrow(2, at, keys)?, true);
        let (keys, reads) = (of_heads(values)?, of_heads(values + keys)?);
        let steps = steps.add(time_bias)?.softplus(1.0, 20.0)?;
        let decays = steps.mul(decays)?.exp()?.unsqueeze(3)?;
        let added = own.mul(&steps.unsqueeze(3)?)?;
        let y = pass.recurrence(spec, [&decays, &keys, &added, &reads], None, cache)?;
        y.add(&own.mul(skip)?)?.reshape([batch, times, values])
    }

    /// A gated delta net: `x` `[b, t, channels]` and the gates' products `[b, t, …]` to `[b, t, heads, value width]`.
    fn delta_net(
        &self,
        x: &Tensor,
        gates: &[Tensor],
        pass: &Pass,
        cache: Option<&LayerCache>,
    ) -> RusTorchResult<Tensor> {
        let (
            Parts::DeltaNet {
                time_bias, decays, ..
            },
            RecurrentKind::DeltaNet { norm, is_grouped },
        ) = (&self.parts, self.spec.kind)
        else {
            return Ok(x.clone());
        };
        let spec = &self.spec;
        let (values, keys) = (spec.values(), spec.keys());
        let [batch, times] = [x.size(0)?, x.size(1)?];
        let (written, kept) = match gates {
            [written, kept] => (written.clone(), kept.clone()),
            _ => {
                let each = spec.heads / spec.groups;
                let both = gates[0].reshape([batch, times, spec.groups, 2 * each])?;
                let part = |at| {
                    both.narrow(3, at, each)?
                        .reshape([batch, times, spec.heads])
                };
                (part(0)?, part(each)?)
            }
        };
        let written = written.sigmoid()?.unsqueeze(3)?;
        let kept = kept.add(time_bias)?.softplus(1.0, 20.0)?;
        let kept = kept.mul(decays)?.exp()?.unsqueeze(3)?;
        let root = (spec.key_width as f64).sqrt();
        // Divided by their length.
        let normed = |at: usize, factor: f64| {
            let x = x.narrow(2, at, keys)?;
            let x = x.reshape([batch, times, spec.groups, spec.key_width])?;
            let eps = norm.eps / spec.key_width as f64;
            let x = x
                .rms_norm([spec.key_width], None, eps)?
                .mul(factor / root)?;
            self.of_heads(&x.reshape([batch, times, keys])?, is_grouped)
        };
        let (queries, keys) = (normed(0, 1.0 / root)?, normed(keys, 1.0)?);
        let own = x.narrow(2, x.size(2)? - values, values)?;
        let own = own.reshape([batch, times, spec.heads, spec.value_width])?;
        // A part of the value that the decayed state has for a key is replaced.
        let replaced = keys.mul(&written.mul(&kept)?.neg()?)?;
        let operands = [&kept, &keys, &own.mul(&written)?, &queries];
        pass.recurrence(spec, operands, Some([&keys, &replaced]), cache)
    }

    /// Keys of groups `[b, t, groups · width]` for each head, `[b, t, heads, width]`. Heads of a group follow each
    /// other, or groups take turns.
    fn of_heads(&self, x: &Tensor, is_grouped: bool) -> RusTorchResult<Tensor> {
        let spec = &self.spec;
        let [batch, times] = [x.size(0)?, x.size(1)?];
        let (groups, width, each) = (spec.groups, spec.key_width, spec.heads / spec.groups);
        let repeated = match is_grouped {
            true => x
                .reshape([batch, times, groups, 1, width])?
                .expand([batch, times, groups, each, width])?,
            false => x
                .reshape([batch, times, 1, groups, width])?
                .expand([batch, times, each, groups, width])?,
        };
        repeated.reshape([batch, times, spec.heads, width])
    }
}
