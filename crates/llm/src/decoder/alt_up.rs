//! Streams of Gemma 3n: layers compute one of them, predict the others and correct all.

use rustorch_tensor::{RusTorchResult, Tensor};

use super::linear::{Linear, Scaled};
use super::norm::Norm;
use super::pass::Pass;
use crate::LlmError;
use crate::spec::{LaurelSpec, NormSpec};
use crate::weights::Loader;

/// The products that make further streams of an embedding, and one result of all.
pub(super) struct Streams {
    count: usize,
    /// `[count − 1, width, width]`
    spread: Tensor,
    /// `[count − 1, width, width]`
    merge: Tensor,
}

impl Streams {
    pub(super) fn load(w: &Loader, count: usize, width: usize) -> Result<Self, LlmError> {
        let shape = [count - 1, width, width];
        Ok(Self {
            count,
            spread: w.get("altup_proj.weight", &shape)?,
            merge: w.get("altup_unembd_proj.weight", &shape)?,
        })
    }

    /// The embedding `x` `[b · t, width]` to `[b · t, streams, width]`, all of its length.
    pub(super) fn spread(&self, x: &Tensor) -> RusTorchResult<Tensor> {
        let mut all = vec![x.clone()];
        for index in 0..self.count - 1 {
            let weight = self.spread.narrow(0, index, 1)?.squeeze(0)?;
            all.push(as_long_as(&x.linear(&weight, None)?, x)?);
        }
        Tensor::stack(&all.iter().collect::<Vec<_>>(), 1)
    }

    /// The mean of streams: of the first one, and of products of the others with its length.
    pub(super) fn merged(&self, streams: &Tensor) -> RusTorchResult<Tensor> {
        let first = active(streams)?;
        let mut sum = first.clone();
        for index in 0..self.count - 1 {
            let weight = self.merge.narrow(0, index, 1)?.squeeze(0)?;
            let other = streams.narrow(1, index + 1, 1)?.squeeze(1)?;
            sum = sum.add(&as_long_as(&other.linear(&weight, None)?, &first)?)?;
        }
        sum.div(self.count as f64)
    }
}

/// The rows of `x` with the lengths of `other`'s.
fn as_long_as(x: &Tensor, other: &Tensor) -> RusTorchResult<Tensor> {
    let length = |x: &Tensor| x.square()?.sum(-1, true)?.sqrt();
    x.mul(&length(other)?)?.div(&length(x)?)
}

/// The stream that layers compute.
pub(super) fn active(streams: &Tensor) -> RusTorchResult<Tensor> {
    streams.narrow(1, 0, 1)?.squeeze(1)
}

/// The streams with `more` added to all but the first.
pub(super) fn added(streams: &Tensor, more: &Tensor) -> RusTorchResult<Tensor> {
    let others = streams.narrow(1, 1, streams.size(1)? - 1)?;
    Tensor::cat(
        &[&streams.narrow(1, 0, 1)?, &others.add(&more.unsqueeze(1)?)?],
        1,
    )
}

/// Weights that predict and correct streams ([Baykal et al.](https://arxiv.org/abs/2301.13310)).
pub(super) struct AltUp {
    norm: Norm,
    router: Linear,
    prediction: Linear,
    correction: Linear,
    /// `[width]`
    scale: Tensor,
}

impl AltUp {
    /// The weights `{prefix}altup_*`.
    pub(super) fn load(
        w: &Loader,
        prefix: &str,
        norm: &NormSpec,
        [streams, width]: [usize; 2],
    ) -> Result<Self, LlmError> {
        let load = |name, outputs, inputs| {
            let name = format!("{prefix}altup_{name}");
            Linear::load(w, &name, outputs, inputs, Scaled::Never)
        };
        Ok(Self {
            norm: Norm::load(w, prefix, norm, width)?,
            router: load("router", streams, width)?,
            prediction: load("predict_coef", streams * streams, streams)?,
            correction: load("correct_coef", streams, streams)?,
            scale: w.f32(&format!("{prefix}altup_correct_scale.weight"), &[width])?,
        })
    }

    /// `x` `[b · t, width]` to a number for each stream, `[b · t, streams]`.
    fn routed(&self, x: &Tensor, pass: &Pass) -> RusTorchResult<Tensor> {
        let x = self.norm.forward(x)?.div(x.size(-1)? as f64)?;
        pass.at_home(&self.router.forward(&x, pass)?)?.tanh()
    }

    /// Streams `[b · t, streams, width]` with a mixture of all added to each.
    pub(super) fn predicted(&self, streams: &Tensor, pass: &Pass) -> RusTorchResult<Tensor> {
        let (rows, count) = (streams.size(0)?, streams.size(1)?);
        let routed = self.routed(&active(streams)?, pass)?;
        let shares = pass.at_home(&self.prediction.forward(&routed, pass)?)?;
        let shares = shares.reshape([rows, count, count])?;
        streams.add(&shares.matmul(streams)?)
    }

    /// Predicted streams with shares of the error of the first one, whose right value is `y` `[b · t, width]`.
    pub(super) fn corrected(
        &self,
        predicted: &Tensor,
        y: &Tensor,
        pass: &Pass,
    ) -> RusTorchResult<Tensor> {
        let error = y.sub(&active(predicted)?)?.unsqueeze(1)?;
        let routed = self.routed(y, pass)?;
        let shares = pass.at_home(&self.correction.forward(&routed, pass)?)?;
        predicted.add(&error.mul(&shares.add(1.0)?.unsqueeze(2)?)?)
    }

    /// The first stream, scaled.
    pub(super) fn scaled(&self, streams: &Tensor) -> RusTorchResult<Tensor> {
        active(streams)?.mul(&self.scale)
    }
}

/// Two products by way of few features, beside attention.
pub(super) struct Laurel {
    down: Linear,
    up: Linear,
    norm: Norm,
}

impl Laurel {
    /// The weights `{prefix}laurel_*`.
    pub(super) fn load(
        w: &Loader,
        prefix: &str,
        spec: &LaurelSpec,
        width: usize,
    ) -> Result<Self, LlmError> {
        let load = |name, outputs, inputs| {
            let name = format!("{prefix}laurel_{name}");
            Linear::load(w, &name, outputs, inputs, Scaled::Never)
        };
        Ok(Self {
            down: load("l", spec.rank, width)?,
            up: load("r", width, spec.rank)?,
            norm: Norm::load(w, prefix, &spec.norm, width)?,
        })
    }

    /// `x` `[b · t, width]` to the same shape.
    pub(super) fn forward(&self, x: &Tensor, pass: &Pass) -> RusTorchResult<Tensor> {
        let few = pass.at_home(&self.down.forward(x, pass)?)?;
        let y = pass.at_home(&self.up.forward(&few, pass)?)?;
        x.add(&self.norm.forward(&y)?)
    }
}
