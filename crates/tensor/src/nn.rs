//! The layers of neural networks, as functions.

use rustorch_ir::ops::{BatchNorm, Embedding, LayerNorm, Linear, RmsNorm, Softmax};
use rustorch_ir::{DType, Param};

use crate::Tensor;
use crate::error::{RusTorchResult, require};

impl Tensor {
    /// `exp(x) / Σ exp(x)` along `dim`, computed without overflow. Floats.
    ///
    /// # Errors
    /// Another dtype; no such dimension, or an empty one.
    pub fn softmax(&self, dim: isize) -> RusTorchResult<Self> {
        let dim = self.dim("softmax", dim)?;
        Self::apply("softmax", Softmax { dim }, &[self])
    }

    /// `log(softmax(x))` along `dim`, computed without overflow or loss. Floats.
    ///
    /// # Errors
    /// Another dtype; no such dimension, or an empty one.
    pub fn log_softmax(&self, dim: isize) -> RusTorchResult<Self> {
        self.require_float("log_softmax")?;
        let shifted = self.sub(&self.max(dim, true)?)?;
        shifted.sub(&shifted.exp()?.sum(dim, true)?.log()?)
    }

    /// `self · weightᵀ + bias`: `self` `[…, k]`, floats; `weight` `[n, k]`, floats or a block
    /// format; `bias` `[n]` of `self`'s dtype. Result `[…, n]` of `self`'s dtype.
    ///
    /// # Errors
    /// Shapes or dtypes other than these.
    pub fn linear(&self, weight: &Self, bias: Option<&Self>) -> RusTorchResult<Self> {
        let inputs: Vec<&Self> = [self, weight].into_iter().chain(bias).collect();
        Self::apply("linear", Linear, &inputs)
    }

    /// The rows `ids` of this table `[v, d]`, floats or a block format, in its dtype, or
    /// `f32` for a block format. `ids` are `i64` or `i32` of any shape; the result has
    /// their shape and `d`.
    ///
    /// # Errors
    /// Shapes or dtypes other than these; when computed, an id outside the table.
    pub fn embedding(&self, ids: &Self) -> RusTorchResult<Self> {
        let dtype = match self.dtype().is_block() {
            true => DType::F32,
            false => self.dtype(),
        };
        self.embedding_as(ids, dtype)
    }

    /// [`Tensor::embedding`] in another float dtype.
    ///
    /// # Errors
    /// As [`Tensor::embedding`].
    pub fn embedding_as(&self, ids: &Self, dtype: DType) -> RusTorchResult<Self> {
        Self::apply("embedding", Embedding { dtype }, &[self, ids])
    }

    /// `(x - mean) / √(var + eps) · weight + bias` over the last dimensions, which are
    /// `normalized_shape`; the variance is the biased one. Floats; `weight` and `bias` have
    /// that shape and `self`'s dtype.
    ///
    /// # Errors
    /// Shapes or dtypes other than these.
    pub fn layer_norm(
        &self,
        normalized_shape: impl AsRef<[usize]>,
        weight: Option<&Self>,
        bias: Option<&Self>,
        eps: f64,
    ) -> RusTorchResult<Self> {
        let inner = normalized_shape.as_ref();
        let expected = format!("a tensor [.., {inner:?}]");
        require(
            "layer_norm",
            self.shape().ends_with(inner),
            expected,
            self.ty(),
        )?;
        let op = LayerNorm {
            dims: inner.len(),
            eps: Param(eps),
        };
        let ones = ones_beside(weight, bias)?;
        let weight = weight.or(ones.as_ref());
        let inputs: Vec<&Self> = [self].into_iter().chain(weight).chain(bias).collect();
        Self::apply("layer_norm", op, &inputs)
    }

    /// `x / √(mean(x²) + eps) · weight` over the last dimension, of size `d`. Floats;
    /// `weight` is `[d]` of `self`'s dtype.
    ///
    /// # Errors
    /// Shapes or dtypes other than these.
    pub fn rms_norm(&self, weight: Option<&Self>, eps: f64) -> RusTorchResult<Self> {
        let inputs: Vec<&Self> = [self].into_iter().chain(weight).collect();
        Self::apply("rms_norm", RmsNorm { eps: Param(eps) }, &inputs)
    }

    /// `(x - mean) / √(var + eps) · weight + bias` for each channel of `self` `[n, c, …]`
    /// with given statistics: PyTorch's evaluation mode. Floats; the others are `[c]` of
    /// `self`'s dtype.
    ///
    /// # Errors
    /// Shapes or dtypes other than these.
    pub fn batch_norm(
        &self,
        mean: &Self,
        var: &Self,
        weight: Option<&Self>,
        bias: Option<&Self>,
        eps: f64,
    ) -> RusTorchResult<Self> {
        let ones = ones_beside(weight, bias)?;
        let inputs: Vec<&Self> = ([self, mean, var].into_iter())
            .chain(weight.or(ones.as_ref()))
            .chain(bias)
            .collect();
        Self::apply("batch_norm", BatchNorm { eps: Param(eps) }, &inputs)
    }
}

/// The weight that a bias alone needs: the bias is the operand behind it.
fn ones_beside(weight: Option<&Tensor>, bias: Option<&Tensor>) -> RusTorchResult<Option<Tensor>> {
    match (weight, bias) {
        (None, Some(bias)) => bias.ones_like().map(Some),
        _ => Ok(None),
    }
}
