//! Layers: a mixer, then a feed-forward part.

use rustorch_tensor::{RusTorchResult, Tensor};

use super::alt_up::{self, AltUp, Laurel};
use super::attention::Attention;
use super::experts::Experts;
use super::ffn::Ffn;
use super::linear::{Linear, Scaled, times};
use super::norm::Norm;
use super::pass::Pass;
use super::recurrent::Recurrent;
use crate::LlmError;
use crate::kv_cache::LayerCache;
use crate::spec::{Activation, LayerSpec, Mixer, Need, OwnInputSpec, Residual};
use crate::weights::Loader;

/// Operands of a layer besides the result of the one before.
pub(super) struct Given<'a> {
    /// The first layer's input.
    pub(super) embedded: &'a Tensor,
    /// The layer's own input `[b · t, features]`.
    pub(super) own: Option<Tensor>,
}

/// The part of a layer that reads the layer's own input.
struct OwnInput {
    activation: Activation,
    gate: Linear,
    product: Linear,
    norm: Norm,
}

impl OwnInput {
    fn load(w: &Loader, prefix: &str, spec: &OwnInputSpec, width: usize) -> Result<Self, LlmError> {
        let load = |name, outputs, inputs| {
            Linear::load(
                w,
                &format!("{prefix}{name}"),
                outputs,
                inputs,
                Scaled::Never,
            )
        };
        Ok(Self {
            activation: spec.activation,
            gate: load("inp_gate", spec.width, width)?,
            product: load("proj", width, spec.width)?,
            norm: Norm::load(w, prefix, &spec.norm, width)?,
        })
    }

    /// The addend to `x` `[b · t, width]`, with `input` `[b · t, features]`.
    fn forward(&self, x: &Tensor, input: &Tensor, pass: &Pass) -> RusTorchResult<Tensor> {
        let gate = self
            .activation
            .of(&pass.at_home(&self.gate.forward(x, pass)?)?)?;
        let y = self.product.forward(&gate.mul(input)?, pass)?;
        self.norm.forward(&pass.at_home(&y)?)
    }
}

/// The part of a layer that mixes tokens.
enum LayerMixer {
    Attention(Box<Attention>),
    Recurrent(Box<Recurrent>),
    Sum(Box<(Attention, Recurrent)>),
    Linear(Box<Linear>),
    None,
}

/// A layer: a mixer, then a feed-forward part, each beside a residual connection, plus control vectors.
pub(super) struct Layer {
    residual: Residual,
    residual_scale: f64,
    norm: Option<Norm>,
    mixer: LayerMixer,
    out_norm: Option<Norm>,
    laurel: Option<Laurel>,
    alt_up: Option<AltUp>,
    sum_norms: Vec<Norm>,
    ffn_norm: Option<Norm>,
    ffn: Ffn,
    ffn_out_norm: Option<Norm>,
    input_experts: Option<(Norm, Experts)>,
    result_norm: Option<Norm>,
    /// Multiplier of the embedding that is added, `[1]`.
    skip_scale: Option<Tensor>,
    own_input: Option<OwnInput>,
    /// Multiplier of the result, `[1]`.
    factor: Option<Tensor>,
    result_scale: f64,
    direction: Option<Tensor>,
    last_norm: Option<Norm>,
}

impl Layer {
    pub(super) fn load(
        w: &Loader,
        spec: &LayerSpec,
        width: usize,
        streams: Option<usize>,
    ) -> Result<Self, LlmError> {
        let prefix = &format!("{}blk.{}.", spec.scope, spec.index);
        let norm = |norm: &Option<_>| Norm::opt(w, prefix, norm.as_ref(), width);
        let input_experts = spec.input_experts.as_ref().map(|(norm, experts)| {
            let norm = Norm::load(w, prefix, norm, width)?;
            Ok::<_, LlmError>((norm, Experts::load(w, prefix, experts, width)?))
        });
        Ok(Self {
            residual: spec.residual,
            residual_scale: spec.residual_scale,
            norm: norm(&spec.norm)?,
            mixer: match &spec.mixer {
                Mixer::Attention(attention) => {
                    let attention = Attention::load(w, prefix, attention, width)?;
                    LayerMixer::Attention(Box::new(attention))
                }
                Mixer::Recurrent(recurrent) => {
                    let recurrent = Recurrent::load(w, prefix, recurrent, width)?;
                    LayerMixer::Recurrent(Box::new(recurrent))
                }
                Mixer::Sum(attention, recurrent) => LayerMixer::Sum(Box::new((
                    Attention::load(w, prefix, attention, width)?,
                    Recurrent::load(w, prefix, recurrent, width)?,
                ))),
                Mixer::Linear => {
                    let name = format!("{prefix}attn_output");
                    LayerMixer::Linear(Box::new(Linear::load(
                        w,
                        &name,
                        width,
                        width,
                        Scaled::BeforeBias,
                    )?))
                }
                Mixer::None => LayerMixer::None,
            },
            out_norm: norm(&spec.out_norm)?,
            laurel: (spec.laurel.as_ref())
                .map(|laurel| Laurel::load(w, prefix, laurel, width))
                .transpose()?,
            alt_up: (spec.router_norm.zip(streams))
                .map(|(norm, streams)| AltUp::load(w, prefix, &norm, [streams, width]))
                .transpose()?,
            sum_norms: (spec.sum_norms.iter())
                .map(|norm| Norm::load(w, prefix, norm, width))
                .collect::<Result<_, _>>()?,
            ffn_norm: norm(&spec.ffn_norm)?,
            ffn: Ffn::load(w, prefix, &spec.ffn, width)?,
            ffn_out_norm: norm(&spec.ffn_out_norm)?,
            input_experts: input_experts.transpose()?,
            result_norm: norm(&spec.result_norm)?,
            skip_scale: match spec.embedding_skip {
                true => Some(w.f32(&format!("{prefix}layer_output_scale.weight"), &[1])?),
                false => None,
            },
            own_input: (spec.own_input.as_ref())
                .map(|own| OwnInput::load(w, prefix, own, width))
                .transpose()?,
            factor: match spec.factor {
                Need::Absent => None,
                _ => w.opt_f32(&format!("{prefix}layer_output_scale.weight"), &[1])?,
            },
            result_scale: spec.result_scale,
            direction: w.direction(spec.index),
            last_norm: Norm::opt(w, "", spec.last_norm.as_ref(), width)?,
        })
    }

    /// `x` `[b · t, width]` to the same shape.
    pub(super) fn forward(
        &self,
        x: &Tensor,
        given: &Given,
        pass: &Pass,
        cache: Option<&LayerCache>,
    ) -> RusTorchResult<Tensor> {
        if let Some(alt_up) = &self.alt_up {
            let predicted = alt_up.predicted(x, pass)?;
            let active = alt_up::active(&predicted)?;
            let y = self.parts(&active, pass, cache)?;
            let y = alt_up.corrected(&predicted, &y, pass)?;
            let y = match (&self.own_input, &given.own) {
                (Some(part), Some(input)) => {
                    let read = alt_up.scaled(&y)?;
                    alt_up::added(&y, &part.forward(&read, input, pass)?)?
                }
                _ => y,
            };
            return self.directed(y);
        }
        let mut y = self.parts(x, pass, cache)?;
        if let Some(scale) = &self.skip_scale {
            y = y.add(&pass.at_home(given.embedded)?.mul(scale)?)?;
        }
        if let (Some(part), Some(input)) = (&self.own_input, &given.own) {
            y = y.add(&part.forward(&y, input, pass)?)?;
        }
        if let Some(factor) = &self.factor {
            y = y.mul(factor)?;
        }
        y = self.directed(times(y, self.result_scale)?)?;
        Norm::apply(self.last_norm.as_ref(), y)
    }

    /// The addend to a part's result: its input, or that behind the norm.
    fn carried(&self, x: &Tensor, normed: &Tensor) -> RusTorchResult<Tensor> {
        match self.residual {
            Residual::Normed(factor) => normed.mul(factor),
            Residual::Sequential | Residual::Parallel => Ok(x.clone()),
        }
    }

    /// The result with the control vectors' addition.
    fn directed(&self, y: Tensor) -> RusTorchResult<Tensor> {
        match &self.direction {
            Some(direction) => y.add(direction),
            None => Ok(y),
        }
    }

    /// The mixer, then the feed-forward part.
    fn parts(&self, x: &Tensor, pass: &Pass, cache: Option<&LayerCache>) -> RusTorchResult<Tensor> {
        let normed = Norm::apply(self.norm.as_ref(), x.clone())?;
        let mixed = match &self.mixer {
            LayerMixer::Attention(attention) => Some(attention.forward(&normed, pass, cache)?),
            LayerMixer::Recurrent(recurrent) => Some(recurrent.forward(&normed, pass, cache)?),
            LayerMixer::Sum(both) => {
                let (attention, recurrent) = &**both;
                let attended = pass.at_home(&attention.forward(&normed, pass, cache)?)?;
                let other = pass.at_home(&recurrent.forward(&normed, pass, cache)?)?;
                Some(attended.add(&other)?)
            }
            LayerMixer::Linear(linear) => Some(linear.forward(&normed, pass)?),
            LayerMixer::None => None,
        };
        let mixed = match mixed {
            Some(mixed) => {
                let mixed = pass.at_home(&mixed)?;
                let mixed = Norm::apply(self.out_norm.as_ref(), mixed)?;
                Some(times(mixed, self.residual_scale)?)
            }
            None => None,
        };
        let mut y = match &mixed {
            Some(mixed) => self.carried(x, &normed)?.add(mixed)?,
            None => x.clone(),
        };
        if let Some(laurel) = &self.laurel {
            y = y
                .add(&laurel.forward(&normed, pass)?)?
                .mul(0.5_f64.sqrt())?;
        }
        for (i, norm) in self.sum_norms.iter().enumerate() {
            y = match i {
                0 => norm.forward(&y)?,
                _ => norm.forward(&x.add(&y)?)?,
            };
        }
        if !self.ffn.is_nothing() {
            let read = match (self.residual, &self.ffn_norm) {
                (Residual::Sequential | Residual::Normed(_), norm) => {
                    Norm::apply(norm.as_ref(), y.clone())?
                }
                (Residual::Parallel, Some(norm)) => norm.forward(x)?,
                (Residual::Parallel, None) => normed,
            };
            let fed = self.ffn.forward(&read, [&y, x], pass, cache)?;
            let fed = Norm::apply(self.ffn_out_norm.as_ref(), fed)?;
            y = self
                .carried(&y, &read)?
                .add(&times(fed, self.residual_scale)?)?;
        }
        if let Some((norm, experts)) = &self.input_experts {
            y = y.add(&experts.forward(&norm.forward(x)?, [x, x], pass)?)?;
        }
        Norm::apply(self.result_norm.as_ref(), y)
    }
}
