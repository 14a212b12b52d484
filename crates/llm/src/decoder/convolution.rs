//! Causal convolution of each channel.

use rustorch_tensor::{RusTorchResult, Tensor};

use super::pass::Pass;
use crate::LlmError;
use crate::kv_cache::LayerCache;
use crate::spec::RecurrentSpec;
use crate::weights::Loader;

/// Causal convolution of each channel. Its state is the first one of the mixer.
pub(super) struct Convolution {
    /// `[channels, kernel]`, in parts that follow each other.
    weights: Vec<Tensor>,
    bias: Option<Tensor>,
    channels: usize,
    kernel: usize,
}

impl Convolution {
    pub(super) fn load(w: &Loader, name: &str, spec: &RecurrentSpec) -> Result<Self, LlmError> {
        let channels = spec.channels();
        Ok(Self {
            weights: vec![w.f32(&format!("{name}.weight"), &[channels, spec.kernel])?],
            bias: w.opt_f32(&format!("{name}.bias"), &[channels])?,
            channels,
            kernel: spec.kernel,
        })
    }

    /// The same of weights for parts of the channels, whose files have further dimensions of 1.
    pub(super) fn load_parts(
        w: &Loader,
        names: [String; 3],
        spec: &RecurrentSpec,
    ) -> Result<Self, LlmError> {
        let (kernel, channels) = (spec.kernel, spec.channels());
        let part = channels / names.len();
        let load = |name: &String| {
            let rank = w.shape(name).map_or(3, |shape| shape.len());
            let weight = match rank {
                4 => w.f32(name, &[1, part, 1, kernel])?,
                _ => w.f32(name, &[part, 1, kernel])?,
            };
            Ok::<_, LlmError>(weight.reshape([part, kernel])?)
        };
        Ok(Self {
            weights: names.iter().map(load).collect::<Result<_, _>>()?,
            bias: None,
            channels,
            kernel,
        })
    }

    /// `x` `[b, t, channels]` to the same shape. The last inputs go to the cache, if there is one.
    pub(super) fn forward(
        &self,
        x: &Tensor,
        pass: &Pass,
        cache: Option<&LayerCache>,
    ) -> RusTorchResult<Tensor> {
        let (times, kernel) = (x.size(1)?, self.kernel);
        let before = pass.recurrent(cache, 0, &[kernel - 1, self.channels])?;
        let inputs = Tensor::cat(&[&before, x], 1)?;
        let weight = match &self.weights[..] {
            [weight] => weight.clone(),
            parts => Tensor::cat(&parts.iter().collect::<Vec<_>>(), 0)?,
        };
        let part = |at: usize| {
            let factors = weight.narrow(1, at, 1)?.squeeze(1)?;
            inputs.narrow(1, at, times)?.mul(&factors)
        };
        let mut sum = part(0)?;
        for at in 1..kernel {
            sum = sum.add(&part(at)?)?;
        }
        if let Some(bias) = &self.bias {
            sum = sum.add(bias)?;
        }
        pass.keep_recurrent(cache, 0, &inputs.narrow(1, times, kernel - 1)?)?;
        Ok(sum)
    }
}
