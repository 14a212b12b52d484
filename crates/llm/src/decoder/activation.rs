//! Activation functions of feed-forward parts.

use rustorch_tensor::{RusTorchResult, Tensor};

use crate::spec::Activation;

impl Activation {
    /// `f(x)`.
    pub(crate) fn of(self, x: &Tensor) -> RusTorchResult<Tensor> {
        match self {
            Self::Silu | Self::SwiGluClamped { .. } | Self::SwiGluLimited { .. } => x.silu(),
            Self::Gelu => x.gelu(),
            Self::GeluTanh => x.gelu_tanh(),
            Self::GeluSparse { deviations } => {
                let spread = x.var(-1, 1, true)?.sqrt()?;
                let bound = x.mean(-1, true)?.add(&spread.mul(deviations)?)?;
                x.sub(&bound)?.relu()?.gelu_tanh()
            }
            Self::Relu => x.relu(),
            Self::ReluSquared => x.relu()?.square(),
            Self::Sigmoid => x.sigmoid(),
            Self::Tanh => x.tanh(),
            Self::Softplus => x.softplus(1.0, 20.0),
            Self::SwiGluOai { alpha, .. } => x.mul(&x.mul(alpha)?.sigmoid()?),
            Self::Xielu {
                negative,
                positive,
                beta,
                eps,
            } => {
                let linear = x.mul(beta)?;
                let above = x.square()?.mul(positive)?.add(&linear)?;
                let below = x.clamp_max(eps)?.expm1()?.sub(x)?.mul(negative)?;
                Tensor::where_(&x.gt(0.0)?, &above, &below.add(&linear)?)
            }
        }
    }

    /// `f(gate) · up`. The activation is recorded before `up`, so that both products keep what follows them.
    pub(crate) fn gated(
        self,
        gate: &Tensor,
        up: impl FnOnce() -> RusTorchResult<Tensor>,
    ) -> RusTorchResult<Tensor> {
        let activated = match self {
            Self::SwiGluOai { limit, .. } => self.of(&gate.clamp_max(limit)?)?,
            Self::SwiGluClamped { limit } => gate.clamp_max(limit)?.silu()?,
            Self::SwiGluLimited { limit } => gate.silu()?.clamp_max(limit)?,
            _ => self.of(gate)?,
        };
        let up = up()?;
        activated.mul(&match self {
            Self::SwiGluOai { limit, .. } => up.clamp(-limit, limit)?.add(1.0)?,
            Self::SwiGluClamped { limit } | Self::SwiGluLimited { limit } => {
                up.clamp(-limit, limit)?
            }
            _ => up,
        })
    }
}
