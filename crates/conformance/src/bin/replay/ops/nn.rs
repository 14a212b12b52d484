//! Layers of neural networks.

use rustorch_ir::DType;
use rustorch_ir::ops::{Conv2d, ConvTranspose2d};
use rustorch_tensor::{AttentionOptions, Tensor};

use crate::call::{Call, Found, missing};
use crate::value::Output;

table! {
    "log_softmax", "input, dim, dtype=None", |c| c.input_as("dtype")?.log_softmax(c.int("dim")?)?;
    "nn.functional.avg_pool2d", AVG_POOL2D, |c| {
        c.only("ceil_mode", "False")?;
        c.only("count_include_pad", "True")?;
        c.only("divisor_override", "None")?;
        let kernel = c.each("kernel_size")?;
        c.input()?.avg_pool2d(kernel, stride(c, kernel)?, c.each("padding")?)?
    };
    "nn.functional.batch_norm", BATCH_NORM, |c| {
        c.only("training", "False")?;
        let (mean, var) = (c.tensor("running_mean")?, c.tensor("running_var")?);
        let (weight, bias) = (c.optional("weight")?, c.optional("bias")?);
        c.input()?.batch_norm(mean, var, weight, bias, c.float("eps")?)?
    };
    "nn.functional.conv2d", "input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1", |c| {
        let parameters = Conv2d {
            stride: c.each("stride")?,
            padding: c.each("padding")?,
            dilation: c.each("dilation")?,
            groups: c.int("groups")?,
        };
        c.input()?.conv2d(c.tensor("weight")?, c.optional("bias")?, &parameters)?
    };
    "nn.functional.conv_transpose2d", CONV_TRANSPOSE2D, |c| {
        let parameters = ConvTranspose2d {
            stride: c.each("stride")?,
            padding: c.each("padding")?,
            output_padding: c.each("output_padding")?,
            dilation: c.each("dilation")?,
            groups: c.int("groups")?,
        };
        c.input()?.conv_transpose2d(c.tensor("weight")?, c.optional("bias")?, &parameters)?
    };
    // PyTorch's tests give the table first.
    "nn.functional.embedding", EMBEDDING, |c| {
        c.only("max_norm", "None")?;
        c.tensor("weight")?.embedding(c.tensor("input")?)?
    };
    "nn.functional.gelu", "input, *, approximate='none'", |c| match c.text("approximate")? {
        "tanh" => c.input()?.gelu_tanh()?,
        "none" => c.input()?.gelu()?,
        other => return missing(format!("approximate={other}")),
    };
    "nn.functional.layer_norm", "input, normalized_shape, weight=None, bias=None, eps=1e-05", |c| {
        let (weight, bias) = (c.optional("weight")?, c.optional("bias")?);
        c.input()?.layer_norm(c.ints("normalized_shape")?, weight, bias, c.float("eps")?)?
    };
    "nn.functional.linear", "input, weight, bias=None", |c| {
        c.input()?.linear(c.tensor("weight")?, c.optional("bias")?)?
    };
    "nn.functional.max_pool2d", MAX_POOL2D, |c| max_pooled(c)?;
    "nn.functional.relu", "input, inplace=False", |c| c.input()?.relu()?;
    "nn.functional.rms_norm", "input, normalized_shape, weight=None, eps=None", |c| {
        let input = c.input()?;
        if c.ints::<usize>("normalized_shape")?[..] != input.shape()[input.rank().saturating_sub(1)..] {
            return missing("normalized_shape of more than the last dimension");
        }
        input.rms_norm(c.optional("weight")?, c.maybe_float("eps")?.unwrap_or(epsilon(input)))?
    };
    "nn.functional.scaled_dot_product_attention", ATTENTION, |c| {
        c.only("dropout_p", "0")?;
        let options = AttentionOptions {
            mask: c.optional("attn_mask")?,
            is_causal: c.bool("is_causal")?,
            scale: c.maybe_float("scale")?,
            ..AttentionOptions::default()
        };
        c.input()?.scaled_dot_product_attention(c.tensor("key")?, c.tensor("value")?, options)?
    };
    "nn.functional.silu", "input, inplace=False", |c| c.input()?.silu()?;
    "nn.functional.softmin", "input, dim, dtype=None", |c| {
        c.input_as("dtype")?.neg()?.softmax(c.int("dim")?)?
    };
    "softmax", "input, dim, dtype=None", |c| c.input_as("dtype")?.softmax(c.int("dim")?)?;
    "nn.functional.celu", "input, alpha=1.0, inplace=False", |c| {
        c.input()?.celu(c.float("alpha")?)?
    };
    "nn.functional.elu", "input, alpha=1.0, inplace=False", |c| c.input()?.elu(c.float("alpha")?)?;
    "nn.functional.glu", "input, dim=-1", |c| c.input()?.glu(c.int("dim")?)?;
    "nn.functional.hardshrink", "input, lambd=0.5", |c| c.input()?.hardshrink(c.float("lambd")?)?;
    "nn.functional.hardsigmoid", "input, inplace=False", |c| c.input()?.hardsigmoid()?;
    "nn.functional.hardswish", "input, inplace=False", |c| c.input()?.hardswish()?;
    "nn.functional.hardtanh", "input, min_val=-1.0, max_val=1.0, inplace=False", |c| {
        c.input()?.hardtanh(c.float("min_val")?, c.float("max_val")?)?
    };
    "nn.functional.leaky_relu", "input, negative_slope=0.01, inplace=False", |c| {
        c.input()?.leaky_relu(c.float("negative_slope")?)?
    };
    "nn.functional.logsigmoid", "input", |c| c.input()?.logsigmoid()?;
    "nn.functional.mish", "input, inplace=False", |c| c.input()?.mish()?;
    "nn.functional.prelu", "input, weight", |c| c.input()?.prelu(c.tensor("weight")?)?;
    "nn.functional.relu6", "input, inplace=False", |c| c.input()?.relu6()?;
    "nn.functional.rrelu", "input, lower=0.125, upper=0.3333333333333333, training=False, inplace=False", |c| {
        c.only("training", "False")?;
        c.input()?.rrelu(c.float("lower")?, c.float("upper")?)?
    };
    "nn.functional.selu", "input, inplace=False", |c| c.input()?.selu()?;
    "nn.functional.softplus", "input, beta=1, threshold=20", |c| {
        c.input()?.softplus(c.float("beta")?, c.float("threshold")?)?
    };
    "nn.functional.softshrink", "input, lambd=0.5", |c| c.input()?.softshrink(c.float("lambd")?)?;
    "nn.functional.softsign", "input", |c| c.input()?.softsign()?;
    "nn.functional.tanhshrink", "input", |c| c.input()?.tanhshrink()?;
    "nn.functional.threshold", "input, threshold, value, inplace=False", |c| {
        c.input()?.threshold(c.float("threshold")?, c.float("value")?)?
    };
}

const ATTENTION: &str = "query, key, value, attn_mask=None, dropout_p=0, is_causal=False, \
     scale=None, enable_gqa=False";
const AVG_POOL2D: &str = "input, kernel_size, stride=None, padding=0, ceil_mode=False, \
     count_include_pad=True, divisor_override=None";
const BATCH_NORM: &str = "input, running_mean, running_var, weight=None, bias=None, \
     training=False, momentum=0.1, eps=1e-05";
const CONV_TRANSPOSE2D: &str = "input, weight, bias=None, stride=1, padding=0, output_padding=0, \
     groups=1, dilation=1";
const EMBEDDING: &str = "weight, input, padding_idx=None, max_norm=None, norm_type=2, \
     scale_grad_by_freq=False, sparse=False";
const MAX_POOL2D: &str = "input, kernel_size, stride=None, padding=0, dilation=1, \
     ceil_mode=False, return_indices=False";

/// The stride of a pooling: the kernel by itself.
fn stride(c: &Call, kernel: [usize; 2]) -> Found<[usize; 2]> {
    match c.value("stride")?.parts() {
        _ if !c.has("stride") => Ok(kernel),
        Some([]) => Ok(kernel),
        _ => c.each("stride"),
    }
}

fn max_pooled(c: &Call) -> Found<Output> {
    c.only("ceil_mode", "False")?;
    let kernel = c.each("kernel_size")?;
    let (stride, padding, dilation) = (stride(c, kernel)?, c.each("padding")?, c.each("dilation")?);
    let input = c.input()?;
    Ok(match c.bool("return_indices")? {
        false => input.max_pool2d(kernel, stride, padding, dilation)?.into(),
        true => input.max_pool2d_with_indices(kernel, stride, padding, dilation)?.into(),
    })
}

/// The distance of 1 to the next number of the dtype, PyTorch's default for `rms_norm`: of halves
/// that of singles, in which they are computed.
fn epsilon(input: &Tensor) -> f64 {
    match input.dtype() {
        DType::F64 => f64::EPSILON,
        _ => f32::EPSILON.into(),
    }
}
