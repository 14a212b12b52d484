//! Mixtures of experts.

use rustorch_ir::DType;
use rustorch_tensor::{RusTorchResult, Tensor};

use super::linear::{Linear, Scaled, times};
use super::norm::Norm;
use super::pass::Pass;
use crate::LlmError;
use crate::adapters::LowRank;
use crate::spec::{ChosenBy, ExpertsSpec, Gating, Need};
use crate::weights::Loader;

/// Smallest divisor of weights: the smallest normal half, so that a sum of 0 does not divide.
const LEAST_SUM: f64 = 6.103_515_625e-5;

/// Products of which each token uses those of its experts. They are computed where their weights are.
pub(super) struct ExpertLinear {
    name: String,
    /// `[experts, outputs, inputs]`.
    weight: Tensor,
    /// `[experts, outputs]`.
    bias: Option<Tensor>,
    /// `[experts]`. It is reshaped in each pass, since training changes parameters in their memory.
    scale: Option<Tensor>,
    adapters: Vec<LowRank>,
}

impl ExpertLinear {
    pub(super) fn load(
        w: &Loader,
        name: &str,
        shape: [usize; 3],
        scales: bool,
    ) -> Result<Self, LlmError> {
        let [experts, outputs, _] = shape;
        let scale = match scales {
            true => w.opt_f32(&format!("{name}.scale"), &[experts])?,
            false => None,
        };
        let weight = format!("{name}.weight");
        Ok(Self {
            weight: w.get(&weight, &shape)?,
            bias: w.opt_f32(&format!("{name}.bias"), &[experts, outputs])?,
            scale,
            adapters: w.low_rank(&weight),
            name: weight,
        })
    }

    /// `x` `[t, 1 or used, inputs]` to `[t, used, outputs]`, by the experts `ids` `[t, used]`.
    pub(super) fn forward(&self, x: &Tensor, ids: &Tensor, pass: &Pass) -> RusTorchResult<Tensor> {
        let x = pass.moved(x, &self.name)?;
        let ids = &pass.moved(ids, &self.name)?;
        let mut y = x.expert_linear(&self.weight, ids)?;
        if let Some(scale) = &self.scale {
            y = y.mul(&scale.unsqueeze(1)?.embedding_as(ids, DType::F32)?)?;
        }
        for adapter in &self.adapters {
            y = y.add(&adapter.expert_product(&x, ids)?)?;
        }
        match &self.bias {
            Some(bias) => y.add(&bias.embedding_as(ids, DType::F32)?),
            None => Ok(y),
        }
    }
}

/// The products of gate and values: two, or one of both.
enum GateUp {
    Split(ExpertLinear, ExpertLinear),
    Fused(ExpertLinear),
    /// Values alone.
    Up(ExpertLinear),
}

/// A mixture of experts.
pub(crate) struct Experts {
    spec: ExpertsSpec,
    router: Option<Linear>,
    choice_bias: Option<Tensor>,
    products: GateUp,
    down: ExpertLinear,
    chunks: Option<(Box<Experts>, f64)>,
    norms: Option<Norms>,
    /// Products before and behind the experts.
    latent: Option<[Linear; 2]>,
}

/// Norms around experts.
struct Norms {
    router: Norm,
    input: Norm,
    output: Norm,
}

impl Experts {
    /// The weights `{prefix}ffn_*{suffix}`, `{prefix}ffn_gate_inp` and `{prefix}exp_probs_b`.
    pub(crate) fn load(
        w: &Loader,
        prefix: &str,
        spec: &ExpertsSpec,
        width: usize,
    ) -> Result<Self, LlmError> {
        let router = format!("{prefix}ffn_gate_inp");
        let router = Linear::load(w, &router, spec.count, width, Scaled::Never)?;
        Self::load_routed(w, prefix, spec, width, Some(router))
    }

    fn load_routed(
        w: &Loader,
        prefix: &str,
        spec: &ExpertsSpec,
        width: usize,
        router: Option<Linear>,
    ) -> Result<Self, LlmError> {
        let name = |part: &str| format!("{prefix}ffn_{part}{}", spec.suffix);
        let count = spec.count / spec.per_group;
        let latent = spec.latent.map(|own| {
            let load = |part: &str, outputs, inputs| {
                let name = format!("{prefix}ffn_latent_{part}");
                Linear::load(w, &name, outputs, inputs, Scaled::Never)
            };
            Ok::<_, LlmError>([load("down", own, width)?, load("up", width, own)?])
        });
        let width = spec.latent.unwrap_or(width);
        let load = |part, out, inputs| {
            ExpertLinear::load(w, &name(part), [count, out, inputs], spec.scales)
        };
        let has = |part| w.has(&format!("{}.weight", name(part)));
        let products = if has("gate_up") {
            GateUp::Fused(load("gate_up", 2 * spec.width, width)?)
        } else if has("up") && !has("gate") {
            GateUp::Up(load("up", spec.width, width)?)
        } else {
            GateUp::Split(
                load("gate", spec.width, width)?,
                load("up", spec.width, width)?,
            )
        };
        let bias = format!("{prefix}exp_probs_b");
        let bias = match w.has(&bias) {
            true => bias,
            false => format!("{bias}.bias"),
        };
        let chunks = spec.chunks.as_ref().map(|(chunks, scale)| {
            let chunks = Self::load_routed(w, prefix, chunks, width, None)?;
            Ok::<_, LlmError>((Box::new(chunks), *scale))
        });
        let norms = spec.norms.as_ref().map(|norms| {
            Ok::<_, LlmError>(Norms {
                router: Norm::load(w, prefix, &norms.router, width)?,
                input: Norm::load(w, prefix, &norms.input, width)?,
                output: Norm::load(w, prefix, &norms.output, width)?,
            })
        });
        Ok(Self {
            norms: norms.transpose()?,
            latent: latent.transpose()?,
            router,
            choice_bias: match spec.choice_bias {
                Need::Required => Some(w.f32(&bias, &[spec.count])?),
                Need::Optional => w.opt_f32(&bias, &[spec.count])?,
                Need::Absent => None,
            },
            products,
            down: load("down", width, spec.width)?,
            chunks: chunks.transpose()?,
            spec: spec.clone(),
        })
    }

    /// `x` `[t, width]` to `[t, width]`; `unnormed` is `x` before its norm, `input` the layer's own input.
    pub(crate) fn forward(
        &self,
        x: &Tensor,
        [unnormed, input]: [&Tensor; 2],
        pass: &Pass,
    ) -> RusTorchResult<Tensor> {
        if let (Some(norms), Some(router)) = (&self.norms, &self.router) {
            let width = unnormed.size(-1)? as f64;
            let read = norms.router.forward(unnormed)?.mul(1.0 / width.sqrt())?;
            let logits = router.forward(&read, pass)?;
            let y = self.routed(&norms.input.forward(unnormed)?, &logits, pass)?;
            return norms.output.forward(&pass.at_home(&y)?);
        }
        let read = match self.spec.router_reads_input {
            true => input,
            false => x,
        };
        let logits = match &self.router {
            Some(router) => router.forward(read, pass)?,
            None => read.clone(),
        };
        let y = match &self.latent {
            Some([down, up]) => {
                let y = self.routed(&down.forward(x, pass)?, &logits, pass)?;
                up.forward(&y, pass)?
            }
            None => self.routed(x, &logits, pass)?,
        };
        match &self.chunks {
            Some((chunks, scale)) => y.add(&chunks.routed(&y, &logits, pass)?.mul(*scale)?),
            None => Ok(y),
        }
    }

    /// `x` `[t, width]` to `[t, width]`, by the router's `logits` `[t, experts]`.
    fn routed(&self, x: &Tensor, logits: &Tensor, pass: &Pass) -> RusTorchResult<Tensor> {
        let spec = &self.spec;
        let (ids, weights) = self.choose(logits)?;
        let weights = weights.unsqueeze(2)?;
        let mut x = x.unsqueeze(1)?;
        if spec.weights_before {
            x = x.mul(&weights)?;
        }
        let y = match &self.products {
            GateUp::Split(gate, up) => {
                let gate = gate.forward(&x, &ids, pass)?;
                (spec.activation).gated(&gate, || up.forward(&x, &ids, pass))?
            }
            GateUp::Fused(both) => {
                let both = both.forward(&x, &ids, pass)?;
                let half = |part: usize| both.narrow(2, part * spec.width, spec.width);
                spec.activation.gated(&half(0)?, || half(1))?
            }
            GateUp::Up(up) => spec.activation.of(&up.forward(&x, &ids, pass)?)?,
        };
        let y = self.down.forward(&y, &ids, pass)?;
        let y = match spec.weights_before {
            true => y,
            false => y.mul(&weights)?,
        };
        y.sum(1, false)
    }

    /// The experts of each token, `i64` `[t, used]`, and their weights, `f32` of that shape.
    fn choose(&self, logits: &Tensor) -> RusTorchResult<(Tensor, Tensor)> {
        let spec = &self.spec;
        let is_plain = matches!(spec.chosen_by, ChosenBy::Probabilities)
            && self.choice_bias.is_none()
            && spec.groups.is_none();
        // The total of all exponentials divides out of weights that are divided by their own total.
        let gating = match spec.gating {
            Gating::Softmax if is_plain && spec.normalised => Gating::SoftmaxOfChosen,
            gating => gating,
        };
        let probabilities = match gating {
            Gating::Softmax => logits.softmax(-1)?,
            Gating::Sigmoid => logits.sigmoid()?,
            Gating::SoftmaxOfChosen => logits.clone(),
            Gating::SqrtSoftplus => logits.softplus(1.0, 20.0)?.sqrt()?,
        };
        let by = match (spec.chosen_by, &self.choice_bias) {
            (ChosenBy::Logits, _) => logits.clone(),
            (ChosenBy::Sigmoid, _) => logits.sigmoid()?,
            (ChosenBy::Probabilities, Some(bias)) => probabilities.add(bias)?,
            (ChosenBy::Probabilities, None) => probabilities.clone(),
        };
        let by = self.within_groups(by)?;
        let (best, mut ids) = by.topk(spec.used, -1, true)?;
        if spec.per_group > 1 {
            ids = ids.floor_divide(spec.per_group as i64)?;
        }
        let mut weights = match is_plain && spec.per_group == 1 {
            true => best,
            false => probabilities.gather(1, &ids)?,
        };
        if gating == Gating::SoftmaxOfChosen {
            weights = weights.softmax(-1)?;
        } else if spec.normalised {
            let sum = weights.sum(1, true)?.clamp_min(LEAST_SUM)?;
            weights = weights.div(&sum)?;
        }
        Ok((ids, times(weights, spec.scale)?))
    }

    /// The same numbers `[t, experts]`, −∞ outside of the groups whose two best experts have the largest sums
    /// ([DeepSeek-V3](https://arxiv.org/abs/2412.19437), section 2.1.2).
    fn within_groups(&self, by: Tensor) -> RusTorchResult<Tensor> {
        let Some((groups, used)) = self.spec.groups else {
            return Ok(by);
        };
        let (t, each) = (by.shape()[0], self.spec.count / groups);
        let grouped = by.reshape([t, groups, each])?;
        let (best, _) = grouped.topk(2.min(each), -1, true)?;
        let (_, chosen) = best.sum(2, false)?.topk(used, -1, true)?;
        let hidden = Tensor::full([t, groups], f64::NEG_INFINITY, DType::F32)?;
        let addend = hidden.scatter(1, &chosen, 0.0)?;
        grouped
            .add(&addend.unsqueeze(2)?)?
            .reshape([t, self.spec.count])
    }
}
