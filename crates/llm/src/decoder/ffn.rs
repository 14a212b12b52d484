//! Feed-forward parts.

use rustorch_tensor::{RusTorchResult, Tensor};

use super::experts::Experts;
use super::linear::{Linear, Scaled, times};
use super::norm::Norm;
use super::pass::Pass;
use super::rwkv::ChannelMix;
use crate::LlmError;
use crate::kv_cache::LayerCache;
use crate::spec::{Activation, DenseSpec, FfnSpec, Gate, Scales};
use crate::weights::Loader;

/// The part of a layer that computes each token separately.
pub(crate) struct Ffn {
    bare: Option<Activation>,
    dense: Option<Dense>,
    experts: Option<Experts>,
    channel_mix: Option<ChannelMix>,
    scale: f64,
}

impl Ffn {
    /// The weights `{prefix}ffn_*`.
    pub(crate) fn load(
        w: &Loader,
        prefix: &str,
        spec: &FfnSpec,
        width: usize,
    ) -> Result<Self, LlmError> {
        let dense = spec.dense.as_ref();
        let experts = spec.experts.as_ref();
        Ok(Self {
            bare: spec.bare,
            dense: (dense.map(|dense| Dense::load(w, prefix, dense, width))).transpose()?,
            experts: (experts.map(|experts| Experts::load(w, prefix, experts, width)))
                .transpose()?,
            channel_mix: (spec.channel_mix.as_ref())
                .map(|channels| ChannelMix::load(w, prefix, channels))
                .transpose()?,
            scale: spec.scale,
        })
    }

    /// Returns whether there is nothing to compute.
    pub(crate) fn is_nothing(&self) -> bool {
        let has_products = self.dense.is_some() || self.experts.is_some();
        self.bare.is_none() && !has_products && self.channel_mix.is_none()
    }

    /// `x` `[t, width]` to `[t, width]`; `unnormed` is `x` before its norm, `input` the layer's own input. A
    /// state goes to the cache, if there is one.
    pub(crate) fn forward(
        &self,
        x: &Tensor,
        [unnormed, input]: [&Tensor; 2],
        pass: &Pass,
        cache: Option<&LayerCache>,
    ) -> RusTorchResult<Tensor> {
        let bare = self.bare.map(|activation| activation.of(x));
        let dense = self.dense.as_ref().map(|dense| dense.forward(x, pass));
        let experts = (self.experts.as_ref()).map(|e| e.forward(x, [unnormed, input], pass));
        let channels = (self.channel_mix.as_ref()).map(|part| part.forward(x, pass, cache));
        let parts = [experts, dense, bare, channels].into_iter().flatten();
        let parts = parts.map(|part| pass.at_home(&part?));
        let sum = parts.reduce(|sum, part| sum?.add(&part?));
        let y = sum.unwrap_or_else(|| Ok(x.clone()))?;
        times(y, self.scale)
    }
}

/// Two or three products with an activation between them; the form with a gate is
/// [Shazeer's](https://arxiv.org/abs/2002.05202).
struct Dense {
    spec: DenseSpec,
    gate: Option<Linear>,
    up: Linear,
    act_scales: Option<Tensor>,
    inner_norm: Option<Norm>,
    down: Linear,
    token_gate: Option<TokenGate>,
    out_norm: Option<Norm>,
}

/// A product with one row, which gives a number for each token.
struct TokenGate {
    name: String,
    row: Tensor,
}

impl TokenGate {
    /// `x` `[t, width]` to `[t, 1]`.
    fn forward(&self, x: &Tensor, pass: &Pass) -> RusTorchResult<Tensor> {
        let row = self.row.unsqueeze(0)?;
        pass.moved(x, &self.name)?.linear(&row, None)
    }
}

impl Dense {
    fn load(w: &Loader, prefix: &str, spec: &DenseSpec, width: usize) -> Result<Self, LlmError> {
        let name = |part: &str| format!("{prefix}ffn_{part}{}", spec.suffix);
        let load = |part, out, inputs| {
            let is_scaled = match spec.scales {
                Scales::All => true,
                Scales::Down => part == "down",
                Scales::None => false,
            };
            let scaled = match is_scaled {
                true => Scaled::AfterBias,
                false => Scaled::Never,
            };
            let linear = Linear::load(w, &name(part), out, inputs, scaled)?;
            Ok::<_, LlmError>(linear.with_own_bias(spec.biases))
        };
        let up = match spec.gate {
            Gate::Fused => 2 * spec.width,
            Gate::Separate | Gate::None => spec.width,
        };
        Ok(Self {
            gate: (spec.gate == Gate::Separate)
                .then(|| load("gate", spec.width, width))
                .transpose()?,
            up: load("up", up, width)?,
            act_scales: match spec.gate {
                Gate::None => w.opt_f32(&format!("{prefix}ffn.act.scales"), &[spec.width])?,
                _ => None,
            },
            inner_norm: Norm::opt(w, prefix, spec.inner_norm.as_ref(), spec.width)?,
            down: load("down", width, spec.width)?,
            token_gate: match spec.token_gate {
                true => {
                    let name = format!("{prefix}ffn_gate_inp{}.weight", spec.suffix);
                    let row = w.get(&name, &[width])?;
                    Some(TokenGate { name, row })
                }
                false => None,
            },
            out_norm: Norm::opt(w, prefix, spec.out_norm.as_ref(), width)?,
            spec: spec.clone(),
        })
    }

    /// `x` `[t, width]` to `[t, width]`.
    fn forward(&self, x: &Tensor, pass: &Pass) -> RusTorchResult<Tensor> {
        let activation = self.spec.activation;
        let y = match (&self.gate, self.spec.gate) {
            (Some(gate), _) => {
                activation.gated(&gate.forward(x, pass)?, || self.up.forward(x, pass))?
            }
            (None, Gate::Fused) => {
                let both = self.up.forward(x, pass)?;
                let half = |part: usize| both.narrow(1, part * self.spec.width, self.spec.width);
                activation.gated(&half(0)?, || half(1))?
            }
            (None, _) => activation.of(&self.up.forward(x, pass)?)?,
        };
        let y = match &self.act_scales {
            Some(scales) => y.div(scales)?,
            None => y,
        };
        let y = Norm::apply(self.inner_norm.as_ref(), y)?;
        let y = self.down.forward(&y, pass)?;
        let y = match &self.token_gate {
            Some(gate) => y.mul(&gate.forward(x, pass)?.sigmoid()?)?,
            None => y,
        };
        Norm::apply(self.out_norm.as_ref(), y)
    }
}
