//! Norms of the last dimension.

use rustorch_tensor::{RusTorchResult, Tensor};

use crate::LlmError;
use crate::spec::{HeadNormSpec, Need, NormKind, NormSpec, NormedOver};
use crate::weights::Loader;

/// A norm of the last dimension.
pub(crate) struct Norm {
    kind: NormKind,
    width: usize,
    weight: Option<Tensor>,
    bias: Option<Tensor>,
    eps: f64,
}

impl Norm {
    /// `{prefix}{name}.weight` `[width]` and, where the file has it, `.bias`. Some files leave `.weight` away.
    pub(crate) fn load(
        w: &Loader,
        prefix: &str,
        spec: &NormSpec,
        width: usize,
    ) -> Result<Self, LlmError> {
        let name = format!("{prefix}{}", spec.name);
        let full = format!("{name}.weight");
        let weight = match spec.weight {
            Need::Required if w.has(&name) && !w.has(&full) => Some(w.f32(&name, &[width])?),
            Need::Required => Some(w.f32(&full, &[width])?),
            Need::Optional => w.opt_f32(&full, &[width])?,
            Need::Absent => None,
        };
        let bias = match weight {
            Some(_) => w.opt_f32(&format!("{name}.bias"), &[width])?,
            None => None,
        };
        let bias = bias.filter(|_| spec.bias);
        Ok(Self {
            kind: spec.kind,
            width,
            weight,
            bias,
            eps: spec.eps,
        })
    }

    /// The same as [`Self::load`], of a norm that may not be there.
    pub(crate) fn opt(
        w: &Loader,
        prefix: &str,
        spec: Option<&NormSpec>,
        width: usize,
    ) -> Result<Option<Self>, LlmError> {
        spec.map(|spec| Self::load(w, prefix, spec, width))
            .transpose()
    }

    /// The norm of `x`, or `x` itself without a norm.
    pub(crate) fn apply(norm: Option<&Self>, x: Tensor) -> RusTorchResult<Tensor> {
        match norm {
            Some(norm) => norm.forward(&x),
            None => Ok(x),
        }
    }

    /// Shape and dtype stay.
    pub(crate) fn forward(&self, x: &Tensor) -> RusTorchResult<Tensor> {
        let (weight, bias) = (self.weight.as_ref(), self.bias.as_ref());
        match self.kind {
            NormKind::Layer => x.layer_norm([self.width], weight, bias, self.eps),
            NormKind::Rms => {
                let y = x.rms_norm([self.width], weight, self.eps)?;
                bias.map_or(Ok(y.clone()), |bias| y.add(bias))
            }
        }
    }
}

/// A norm of queries or keys.
pub(crate) struct HeadNorm {
    norm: Norm,
    over: NormedOver,
    /// Weights of each head, `[heads, head width]` or `[heads, 1]`.
    own: Option<Tensor>,
    /// The same for biases.
    own_bias: Option<Tensor>,
}

impl HeadNorm {
    /// The weights of `heads` heads of this width.
    pub(crate) fn load(
        w: &Loader,
        prefix: &str,
        spec: &HeadNormSpec,
        heads: usize,
        width: usize,
    ) -> Result<Self, LlmError> {
        let own = match spec.over {
            NormedOver::HeadOwnWeights => Some([heads, width]),
            NormedOver::HeadOneWeight => Some([heads, 1]),
            NormedOver::Head | NormedOver::Width => None,
        };
        let name = |part| format!("{prefix}{}.{part}", spec.norm.name);
        let bare = NormSpec {
            weight: Need::Absent,
            ..spec.norm
        };
        let (own, own_bias, norm) = match own {
            Some(shape) => {
                let bias = w.opt_f32(&name("bias"), &shape)?;
                (Some(w.f32(&name("weight"), &shape)?), bias, bare)
            }
            None => (None, None, spec.norm),
        };
        let over = match spec.over {
            NormedOver::Width => heads * width,
            _ => width,
        };
        Ok(Self {
            norm: Norm::load(w, prefix, &norm, over)?,
            over: spec.over,
            own,
            own_bias,
        })
    }

    /// Returns whether it is a norm of all heads together, `[t, heads · width]`.
    pub(crate) fn is_over_all(&self) -> bool {
        self.over == NormedOver::Width
    }

    /// `x` `[t, heads, width]`, or with the heads first.
    pub(crate) fn forward(&self, x: &Tensor, heads_first: bool) -> RusTorchResult<Tensor> {
        let y = self.norm.forward(x)?;
        let beside_tokens = |own: &Tensor| match heads_first {
            true => own.unsqueeze(1),
            false => Ok(own.clone()),
        };
        let y = match &self.own {
            Some(own) => y.mul(&beside_tokens(own)?)?,
            None => y,
        };
        match &self.own_bias {
            Some(bias) => y.add(&beside_tokens(bias)?),
            None => Ok(y),
        }
    }
}
