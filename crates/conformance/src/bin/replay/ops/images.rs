//! Convolutions, pooling, and images in other sizes.

use rustorch_tensor::nn::{
    AvgPoolOptions, ConvOptions, ConvPadding, ConvTransposeOptions, FractionalSize, MaxPoolOptions,
};
use rustorch_tensor::{RusTorchResult, Tensor};

use crate::call::{Call, Found, missing};
use crate::value::{Output, Value};

table! {
    "nn.functional.adaptive_avg_pool1d", "input, output_size", |c| {
        c.input()?.adaptive_avg_pool1d(sizes(c)?)?
    };
    "nn.functional.adaptive_avg_pool2d", "input, output_size", |c| {
        c.input()?.adaptive_avg_pool2d(sizes(c)?)?
    };
    "nn.functional.adaptive_avg_pool3d", "input, output_size", |c| {
        c.input()?.adaptive_avg_pool3d(sizes(c)?)?
    };
    "nn.functional.adaptive_max_pool1d", ADAPTIVE_MAX_POOL, |c| match c.bool("return_indices")? {
        true => Output::from(c.input()?.adaptive_max_pool1d_with_indices(sizes(c)?)?),
        false => c.input()?.adaptive_max_pool1d(sizes(c)?)?.into(),
    };
    "nn.functional.adaptive_max_pool2d", ADAPTIVE_MAX_POOL, |c| match c.bool("return_indices")? {
        true => Output::from(c.input()?.adaptive_max_pool2d_with_indices(sizes(c)?)?),
        false => c.input()?.adaptive_max_pool2d(sizes(c)?)?.into(),
    };
    "nn.functional.adaptive_max_pool3d", ADAPTIVE_MAX_POOL, |c| match c.bool("return_indices")? {
        true => Output::from(c.input()?.adaptive_max_pool3d_with_indices(sizes(c)?)?),
        false => c.input()?.adaptive_max_pool3d(sizes(c)?)?.into(),
    };
    "nn.functional.avg_pool1d", AVG_POOL1D, |c| {
        c.input()?.avg_pool1d(c.each("kernel_size")?, &averaged(c)?)?
    };
    "nn.functional.avg_pool2d", AVG_POOL, |c| {
        c.input()?.avg_pool2d(c.each("kernel_size")?, &averaged(c)?)?
    };
    "nn.functional.avg_pool3d", AVG_POOL, |c| {
        c.input()?.avg_pool3d(c.each("kernel_size")?, &averaged(c)?)?
    };
    "nn.functional.conv1d", CONV, |c| convolved(c, Tensor::conv1d)?;
    "nn.functional.conv2d", CONV, |c| convolved(c, Tensor::conv2d)?;
    "nn.functional.conv3d", CONV, |c| convolved(c, Tensor::conv3d)?;
    "nn.functional.conv_transpose1d", CONV_TRANSPOSE, |c| transposed(c, Tensor::conv_transpose1d)?;
    "nn.functional.conv_transpose2d", CONV_TRANSPOSE, |c| transposed(c, Tensor::conv_transpose2d)?;
    "nn.functional.conv_transpose3d", CONV_TRANSPOSE, |c| transposed(c, Tensor::conv_transpose3d)?;
    "nn.functional.fractional_max_pool2d", FRACTIONAL_MAX_POOL, |c| {
        let (kernel, size) = (c.each("kernel_size")?, fractional(c)?);
        let samples = c.optional("_random_samples")?;
        first_or_both(c, c.input()?.fractional_max_pool2d(kernel, size, samples)?)?
    };
    "nn.functional.fractional_max_pool3d", FRACTIONAL_MAX_POOL, |c| {
        let (kernel, size) = (c.each("kernel_size")?, fractional(c)?);
        let samples = c.optional("_random_samples")?;
        first_or_both(c, c.input()?.fractional_max_pool3d(kernel, size, samples)?)?
    };
    "nn.functional.max_pool1d", MAX_POOL, |c| {
        let (kernel, options) = (c.each("kernel_size")?, largest(c)?);
        match c.bool("return_indices")? {
            true => Output::from(c.input()?.max_pool1d_with_indices(kernel, &options)?),
            false => c.input()?.max_pool1d(kernel, &options)?.into(),
        }
    };
    "nn.functional.max_pool2d", MAX_POOL, |c| {
        let (kernel, options) = (c.each("kernel_size")?, largest(c)?);
        match c.bool("return_indices")? {
            true => Output::from(c.input()?.max_pool2d_with_indices(kernel, &options)?),
            false => c.input()?.max_pool2d(kernel, &options)?.into(),
        }
    };
    "nn.functional.max_pool3d", MAX_POOL, |c| {
        let (kernel, options) = (c.each("kernel_size")?, largest(c)?);
        match c.bool("return_indices")? {
            true => Output::from(c.input()?.max_pool3d_with_indices(kernel, &options)?),
            false => c.input()?.max_pool3d(kernel, &options)?.into(),
        }
    };
    "nn.functional.max_unpool1d", MAX_UNPOOL, |c| unpooled(c, Tensor::max_unpool1d)?;
    "nn.functional.max_unpool2d", MAX_UNPOOL, |c| unpooled(c, Tensor::max_unpool2d)?;
    "nn.functional.max_unpool3d", MAX_UNPOOL, |c| unpooled(c, Tensor::max_unpool3d)?;
}

const ADAPTIVE_MAX_POOL: &str = "input, output_size, return_indices=False";
const AVG_POOL1D: &str = "input, kernel_size, stride=None, padding=0, ceil_mode=False, \
     count_include_pad=True";
const AVG_POOL: &str = "input, kernel_size, stride=None, padding=0, ceil_mode=False, \
     count_include_pad=True, divisor_override=None";
const CONV: &str = "input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1";
const CONV_TRANSPOSE: &str = "input, weight, bias=None, stride=1, padding=0, output_padding=0, \
     groups=1, dilation=1";
const FRACTIONAL_MAX_POOL: &str = "input, kernel_size, output_size=None, output_ratio=None, \
     return_indices=False, _random_samples=None";
const MAX_POOL: &str = "input, kernel_size, stride=None, padding=0, dilation=1, \
     ceil_mode=False, return_indices=False";
const MAX_UNPOOL: &str = "input, indices, kernel_size, stride=None, padding=0, output_size=None";

/// The stride of a pooling: that of the kernel by itself.
fn stride<const N: usize>(c: &Call) -> Found<Option<[usize; N]>> {
    match c.value("stride")?.parts() {
        Some([]) => Ok(None),
        _ if !c.has("stride") => Ok(None),
        _ => c.each("stride").map(Some),
    }
}

fn largest<const N: usize>(c: &Call) -> Found<MaxPoolOptions<N>> {
    Ok(MaxPoolOptions {
        stride: stride(c)?,
        padding: c.each("padding")?,
        dilation: c.each("dilation")?,
        ceil_mode: c.bool("ceil_mode")?,
    })
}

fn averaged<const N: usize>(c: &Call) -> Found<AvgPoolOptions<N>> {
    Ok(AvgPoolOptions {
        stride: stride(c)?,
        padding: c.each("padding")?,
        ceil_mode: c.bool("ceil_mode")?,
        count_include_pad: c.bool("count_include_pad")?,
        divisor_override: match c.has("divisor_override") {
            true => c.maybe_int("divisor_override")?,
            false => None,
        },
    })
}

/// Sizes, of which `None` is that of the dimension; one stands for all.
fn sizes<const N: usize>(c: &Call) -> Found<[Option<usize>; N]> {
    let value = c.value("output_size")?;
    let size = |value: &Value| match *value {
        Value::None => Ok(None),
        Value::Int(size) => match usize::try_from(size) {
            Ok(size) => Ok(Some(size)),
            Err(_) => missing(format!("output_size={size}")),
        },
        _ => missing(format!("output_size={value}")),
    };
    match value.parts() {
        Some([one]) => Ok([size(one)?; N]),
        None => Ok([size(value)?; N]),
        Some(parts) => {
            let sizes = parts.iter().map(size).collect::<Found<Vec<_>>>()?;
            <[_; N]>::try_from(sizes).or_else(|_| missing(format!("output_size={value}")))
        }
    }
}

fn fractional<const N: usize>(c: &Call) -> Found<FractionalSize<N>> {
    if c.has("output_size") {
        return c.each("output_size").map(FractionalSize::Size);
    }
    let value = c.value("output_ratio")?;
    let ratio = |value: &Value| match *value {
        Value::Float(ratio) => Ok(ratio),
        _ => missing(format!("output_ratio={value}")),
    };
    let ratios = match value.parts() {
        None => vec![ratio(value)?; N],
        Some(parts) => parts.iter().map(ratio).collect::<Found<_>>()?,
    };
    match <[f64; N]>::try_from(ratios) {
        Ok(ratios) => Ok(FractionalSize::Ratio(ratios)),
        Err(_) => missing(format!("output_ratio={value}")),
    }
}

fn first_or_both(c: &Call, (values, indices): (Tensor, Tensor)) -> Found<Output> {
    Ok(match c.bool("return_indices")? {
        true => (values, indices).into(),
        false => values.into(),
    })
}

type Convolution<O> = fn(&Tensor, &Tensor, Option<&Tensor>, &O) -> RusTorchResult<Tensor>;

fn convolved<const N: usize>(c: &Call, function: Convolution<ConvOptions<N>>) -> Found<Tensor> {
    let padding = match c.value("padding")? {
        Value::Text(text) if text == "same" => ConvPadding::Same,
        Value::Text(text) if text == "valid" => ConvPadding::Valid,
        _ => ConvPadding::Each(c.each("padding")?),
    };
    let options = ConvOptions {
        stride: c.each("stride")?,
        padding,
        dilation: c.each("dilation")?,
        groups: c.int("groups")?,
    };
    Ok(function(c.input()?, c.tensor("weight")?, c.optional("bias")?, &options)?)
}

fn transposed<const N: usize>(
    c: &Call,
    function: Convolution<ConvTransposeOptions<N>>,
) -> Found<Tensor> {
    let options = ConvTransposeOptions {
        stride: c.each("stride")?,
        padding: c.each("padding")?,
        output_padding: c.each("output_padding")?,
        dilation: c.each("dilation")?,
        groups: c.int("groups")?,
    };
    Ok(function(c.input()?, c.tensor("weight")?, c.optional("bias")?, &options)?)
}

type Unpooling<const N: usize> = fn(
    &Tensor,
    &Tensor,
    [usize; N],
    &MaxPoolOptions<N>,
    Option<[usize; N]>,
) -> RusTorchResult<Tensor>;

fn unpooled<const N: usize>(c: &Call, function: Unpooling<N>) -> Found<Tensor> {
    let options = MaxPoolOptions {
        stride: stride(c)?,
        padding: c.each("padding")?,
        ..Default::default()
    };
    // A size may have batch and channels in front.
    let size = match c.has("output_size") {
        true => {
            let sizes: Vec<usize> = c.ints("output_size")?;
            let last = sizes.last_chunk::<N>().copied();
            Some(last.map_or_else(|| missing("a shorter output_size"), Ok)?)
        }
        false => None,
    };
    let kernel = c.each("kernel_size")?;
    Ok(function(c.input()?, c.tensor("indices")?, kernel, &options, size)?)
}
