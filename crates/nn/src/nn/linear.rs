//! Products of inputs and weights.

use rustorch_ir::DType;
use rustorch_macros::track_calls;
use rustorch_tensor::{IntoShape, RusTorchResult, Tensor};

use super::layers::layers;
use super::{Forward, Module, parameter};

/// A parameter of `f32`, drawn evenly from `[-bound, bound)`.
pub(super) fn uniform(shape: impl IntoShape, bound: f64) -> RusTorchResult<Tensor> {
    parameter(Tensor::uniform(-bound, bound, shape, DType::F32)?)
}

/// `1 / √n`, by which PyTorch bounds the weights of `n` connections; 0 where there are none.
pub(super) fn bound_of(connections: usize) -> f64 {
    match connections {
        0 => 0.0,
        n => 1.0 / (n as f64).sqrt(),
    }
}

layers! {
    /// The input, unchanged.
    Identity => |x| Ok(x.clone());
}

/// `x · weightᵀ + bias`: from `[…, in_features]` to `[…, out_features]`.
#[derive(Module)]
pub struct Linear {
    /// `[out_features, in_features]`.
    pub weight: Tensor,
    /// `[out_features]`.
    pub bias: Option<Tensor>,
}

#[track_calls(Linear)]
impl Linear {
    /// A layer with a bias. Weights and biases are uniform in `±1 / √in_features`.
    ///
    /// # Errors
    /// Fails for sizes too large for memory.
    pub fn new(in_features: usize, out_features: usize) -> RusTorchResult<Self> {
        let bound = bound_of(in_features);
        Ok(Self {
            weight: uniform([out_features, in_features], bound)?,
            bias: Some(uniform(out_features, bound)?),
        })
    }

    /// The same without a bias.
    #[must_use]
    pub fn without_bias(mut self) -> Self {
        self.bias = None;
        self
    }
}

#[track_calls(Linear)]
impl Forward for Linear {
    fn forward(&self, x: &Tensor) -> RusTorchResult<Tensor> {
        x.linear(&self.weight, self.bias.as_ref())
    }
}

/// `x₁ · Wᵢ · x₂ + biasᵢ` for each feature `i`.
#[derive(Module)]
pub struct Bilinear {
    /// `[out_features, in1_features, in2_features]`.
    pub weight: Tensor,
    /// `[out_features]`.
    pub bias: Option<Tensor>,
}

#[track_calls(Bilinear)]
impl Bilinear {
    /// A layer with a bias. Weights and biases are uniform in `±1 / √in1_features`.
    ///
    /// # Errors
    /// Fails for sizes too large for memory.
    pub fn new(
        in1_features: usize,
        in2_features: usize,
        out_features: usize,
    ) -> RusTorchResult<Self> {
        let bound = bound_of(in1_features);
        Ok(Self {
            weight: uniform([out_features, in1_features, in2_features], bound)?,
            bias: Some(uniform(out_features, bound)?),
        })
    }

    /// The same without a bias.
    #[must_use]
    pub fn without_bias(mut self) -> Self {
        self.bias = None;
        self
    }

    /// `[…, out_features]` from `[…, in1_features]` and `[…, in2_features]`.
    ///
    /// # Errors
    /// The same errors as [`Tensor::bilinear`].
    pub fn forward(&self, x1: &Tensor, x2: &Tensor) -> RusTorchResult<Tensor> {
        x1.bilinear(x2, &self.weight, self.bias.as_ref())
    }
}
