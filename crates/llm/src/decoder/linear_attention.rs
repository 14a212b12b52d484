//! Linear attention: delta nets with decays of features, and constant decays.

use rustorch_tensor::{RusTorchResult, Tensor};

use super::convolution::Convolution;
use super::linear::{Linear, Scaled};
use super::norm::Norm;
use super::pass::Pass;
use crate::LlmError;
use crate::kv_cache::LayerCache;
use crate::spec::{NormSpec, RecurrentSpec};
use crate::weights::Loader;

/// `[b, t, heads · width]` as `[b, t, heads, width]`.
fn by_heads(x: &Tensor, heads: usize) -> RusTorchResult<Tensor> {
    let width = x.size(2)? / heads;
    x.reshape([x.size(0)?, x.size(1)?, heads, width])
}

/// Kimi Delta Attention ([Kimi Linear](https://arxiv.org/abs/2510.26692)).
pub(super) struct Kda {
    spec: RecurrentSpec,
    convolution: Convolution,
    /// Queries, keys and values.
    products: [Linear; 3],
    /// Products that make decays by way of few features.
    decays: [Linear; 2],
    /// Addend to these, `[heads · width]`, and the factor of each head, `[heads, 1]`.
    decay_bias: Tensor,
    decay_factor: Tensor,
    /// The part of a value that is written.
    written: Linear,
    /// Products that make the gate by way of few features.
    gate: [Linear; 2],
    norm: Norm,
    eps: f64,
}

impl Kda {
    /// The weights `{prefix}attn_*` and `{prefix}ssm_*`, but for the last product.
    pub(super) fn load(
        w: &Loader,
        prefix: &str,
        spec: &RecurrentSpec,
        norm: &NormSpec,
        width: usize,
    ) -> Result<Self, LlmError> {
        let product = |name: &str, outputs, inputs| {
            Linear::load(
                w,
                &format!("{prefix}{name}"),
                outputs,
                inputs,
                Scaled::Never,
            )
        };
        let (heads, few, all) = (spec.heads, spec.key_width, spec.values());
        let own = |name| Ok::<_, LlmError>(product(name, all, width)?.with_own_bias(false));
        let narrow =
            |down, up| Ok::<_, LlmError>([product(down, few, width)?, product(up, all, few)?]);
        let factor = format!("{prefix}ssm_a");
        let rank = w.shape(&factor).map_or(2, |shape| shape.len());
        let factor = match rank {
            4 => w.f32(&factor, &[1, 1, heads, 1])?,
            _ => w.f32(&factor, &[heads, 1])?,
        };
        let part = |part| format!("{prefix}ssm_conv1d_{part}.weight");
        Ok(Self {
            convolution: Convolution::load_parts(w, [part("q"), part("k"), part("v")], spec)?,
            products: [own("attn_q")?, own("attn_k")?, own("attn_v")?],
            decays: narrow("ssm_f_a", "ssm_f_b")?,
            decay_bias: w.f32(&format!("{prefix}ssm_dt.bias"), &[all])?,
            decay_factor: factor.reshape([heads, 1])?,
            written: product("ssm_beta", heads, width)?,
            gate: narrow("ssm_g_a", "ssm_g_b")?,
            norm: Norm::load(w, prefix, norm, spec.value_width)?,
            eps: norm.eps,
            spec: spec.clone(),
        })
    }

    /// `x` `[b · t, width]` to `[b, t, heads, value width]`, before the last product.
    pub(super) fn forward(
        &self,
        x: &Tensor,
        pass: &Pass,
        cache: Option<&LayerCache>,
    ) -> RusTorchResult<Tensor> {
        let (heads, width) = (self.spec.heads, self.spec.key_width);
        let x = pass.in_sequences(x)?;
        let product = |linear: &Linear, x: &Tensor| pass.at_home(&linear.forward(x, pass)?);
        let narrow = |[down, up]: &[Linear; 2]| product(up, &product(down, &x)?);
        let [q, k, v] = &self.products;
        let all = [product(q, &x)?, product(k, &x)?, product(v, &x)?];
        let all = Tensor::cat(&all.iter().collect::<Vec<_>>(), 2)?;
        let all = self.convolution.forward(&all, pass, cache)?.silu()?;
        let part = |at: usize| by_heads(&all.narrow(2, at * heads * width, heads * width)?, heads);
        let root = (width as f64).sqrt();
        // Divided by their length.
        let normed = |x: Tensor, factor: f64| {
            let x = x.rms_norm([width], None, self.eps / width as f64)?;
            x.mul(factor / root)
        };
        let (queries, keys) = (normed(part(0)?, 1.0 / root)?, normed(part(1)?, 1.0)?);
        let steps = narrow(&self.decays)?.add(&self.decay_bias)?;
        let steps = by_heads(&steps.softplus(1.0, 20.0)?, heads)?;
        let kept = steps.mul(&self.decay_factor)?.exp()?;
        let written = product(&self.written, &x)?.sigmoid()?.unsqueeze(3)?;
        let values = part(2)?.mul(&written)?;
        // A part of the value that the decayed state has for a key is replaced.
        let read = keys.mul(&kept)?;
        let replaced = keys.mul(&written.neg()?)?;
        let operands = [&kept, &keys, &values, &queries];
        let correction = Some([&read, &replaced]);
        let y = pass.recurrence(&self.spec, operands, correction, cache)?;
        let gate = by_heads(&narrow(&self.gate)?, heads)?.sigmoid()?;
        self.norm.forward(&y)?.mul(&gate)
    }
}

/// Lightning attention of MiniMax-01 ([MiniMax](https://arxiv.org/abs/2501.08313)): heads with constant decays, each
/// with its queries, keys and values together.
pub(super) struct Lightning {
    spec: RecurrentSpec,
    product: Linear,
    gate: Linear,
    norm: Norm,
    /// Decays `[heads, 1]`.
    decays: Tensor,
}

impl Lightning {
    /// The weights `{prefix}attn_*`, but for the last product.
    pub(super) fn load(
        w: &Loader,
        prefix: &str,
        spec: &RecurrentSpec,
        (norm, slope): (&NormSpec, f64),
        width: usize,
    ) -> Result<Self, LlmError> {
        let product = |name: &str, outputs| {
            Linear::load(w, &format!("{prefix}{name}"), outputs, width, Scaled::Never)
        };
        let values = spec.values();
        // The slopes of ALiBi.
        let base = 2_f64.powf(-8.0 / spec.heads as f64);
        let decay = |head: usize| (-slope * base.powf(head as f64)).exp() as f32;
        let decays: Vec<f32> = (1..=spec.heads).map(decay).collect();
        Ok(Self {
            product: product("attn_qkv", 3 * values)?,
            gate: product("attn_gate", values)?,
            norm: Norm::load(w, prefix, norm, values)?,
            decays: Tensor::from_vec(decays, [spec.heads, 1])?,
            spec: spec.clone(),
        })
    }

    /// `x` `[b · t, width]` to `[b, t, values]`, before the last product.
    pub(super) fn forward(
        &self,
        x: &Tensor,
        pass: &Pass,
        cache: Option<&LayerCache>,
    ) -> RusTorchResult<Tensor> {
        let x = pass.in_sequences(x)?;
        let product = |linear: &Linear| pass.at_home(&linear.forward(&x, pass)?);
        let all = by_heads(&product(&self.product)?.silu()?, self.spec.heads)?;
        let width = self.spec.key_width;
        let part = |at: usize| all.narrow(3, at * width, width);
        let decays = pass.at_home(&self.decays)?;
        let operands = [&decays, &part(1)?, &part(2)?, &part(0)?];
        let y = pass.recurrence(&self.spec, operands, None, cache)?;
        let y = self.norm.forward(&y.flatten(2, 3)?)?;
        y.mul(&product(&self.gate)?.sigmoid()?)
    }
}
