//! Convolutions, pooling, and images in other sizes.

use rustorch_tensor::nn::{
    AvgPoolOptions, ConvOptions, ConvPadding, ConvTransposeOptions, FractionalSize, GridSampleMode,
    GridSampleOptions, GridSamplePadding, InterpolateMode, InterpolateOptions, InterpolateSize,
    MaxPoolOptions,
};
use rustorch_tensor::{RusTorchResult, Tensor};

use crate::call::{Call, Called, missing, untyped};
use crate::value::{Output, Value};

table! {
    "_upsample_bilinear2d_aa", "input, output_size, align_corners, scale_factors=None, *, scales_h=None, scales_w=None", |c| {
        let options = InterpolateOptions {
            mode: InterpolateMode::Linear,
            align_corners: c.bool("align_corners")?,
            antialias: true,
            ..Default::default()
        };
        let size = match c.has("scales_h") || c.has("scales_w") {
            true => {
                let scales = vec![c.float("scales_h")?, c.float("scales_w")?];
                InterpolateSize::SizeAndScale(c.ints("output_size")?, scales)
            }
            false => resized(c, "output_size", "scale_factors")?,
        };
        c.input()?.interpolate(size, &options)?
    };
    "grid_sampler_2d", GRID_SAMPLER, |c| sampled(c)?;
    "grid_sampler_3d", GRID_SAMPLER, |c| sampled(c)?;
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
    "nn.functional.grid_sample", GRID_SAMPLE, |c| sampled(c)?;
    "nn.functional.interpolate", INTERPOLATE, |c| {
        let mode = match c.text("mode")? {
            "nearest" => InterpolateMode::Nearest,
            "nearest-exact" => InterpolateMode::NearestExact,
            name @ ("linear" | "bilinear" | "trilinear") => {
                let rank = ["linear", "bilinear", "trilinear"].iter().position(|&one| one == name);
                match rank.is_some_and(|at| at + 3 == c.input().map_or(0, Tensor::rank)) {
                    true => InterpolateMode::Linear,
                    false => return untyped(format!("mode={name} of another rank")),
                }
            }
            "bicubic" => InterpolateMode::Bicubic,
            "area" => InterpolateMode::Area,
            other => return missing(format!("mode={other}")),
        };
        let flag = |name: &str| if c.has(name) { c.bool(name) } else { Ok(false) };
        let corners = matches!(mode, InterpolateMode::Linear | InterpolateMode::Bicubic);
        if (c.has("align_corners") && !corners) || (c.has("size") && flag("recompute_scale_factor")?) {
            return untyped("an option of other modes, or of scale factors");
        }
        let options = InterpolateOptions {
            mode,
            align_corners: flag("align_corners")?,
            recompute_scale_factor: flag("recompute_scale_factor")?,
            antialias: flag("antialias")?,
        };
        c.input()?.interpolate(resized(c, "size", "scale_factor")?, &options)?
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
    "nn.functional.upsample_bilinear", "input, size=None, scale_factor=None", |c| {
        let options = InterpolateOptions {
            mode: InterpolateMode::Linear,
            align_corners: true,
            ..Default::default()
        };
        c.input()?.interpolate(resized(c, "size", "scale_factor")?, &options)?
    };
    "nn.functional.upsample_nearest", "input, size=None, scale_factor=None", |c| {
        let size = resized(c, "size", "scale_factor")?;
        c.input()?.interpolate(size, &InterpolateOptions::default())?
    };
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
const GRID_SAMPLE: &str = "input, grid, mode='bilinear', padding_mode='zeros', align_corners=None";
const GRID_SAMPLER: &str = "input, grid, mode, padding_mode, align_corners";
const INTERPOLATE: &str = "input, size=None, scale_factor=None, mode='nearest', \
     align_corners=None, recompute_scale_factor=None, antialias=False";
const MAX_POOL: &str = "input, kernel_size, stride=None, padding=0, dilation=1, \
     ceil_mode=False, return_indices=False";
const MAX_UNPOOL: &str = "input, indices, kernel_size, stride=None, padding=0, output_size=None";

/// The stride of a pooling: that of the kernel by itself.
///
/// # Errors
/// Fails if an argument is missing or of another type.
pub fn stride<const N: usize>(c: &Call) -> Called<Option<[usize; N]>> {
    match c.value("stride")?.parts() {
        Some([]) => Ok(None),
        _ if !c.has("stride") => Ok(None),
        _ => c.each("stride").map(Some),
    }
}

/// The options of a pooling of largest elements.
///
/// # Errors
/// Fails if an argument is missing or of another type.
pub fn largest<const N: usize>(c: &Call) -> Called<MaxPoolOptions<N>> {
    Ok(MaxPoolOptions {
        stride: stride(c)?,
        padding: c.each("padding")?,
        dilation: c.each("dilation")?,
        ceil_mode: c.bool("ceil_mode")?,
    })
}

/// The options of a pooling of means.
///
/// # Errors
/// Fails if an argument is missing or of another type.
pub fn averaged<const N: usize>(c: &Call) -> Called<AvgPoolOptions<N>> {
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

/// Sizes; `None` is that of the dimension, and one stands for all.
///
/// # Errors
/// Fails if an argument is missing or of another type.
pub fn sizes<const N: usize>(c: &Call) -> Called<[Option<usize>; N]> {
    let value = c.value("output_size")?;
    let size = |value: &Value| match *value {
        Value::None => Ok(None),
        Value::Int(size) => match usize::try_from(size) {
            Ok(size) => Ok(Some(size)),
            Err(_) => untyped(format!("output_size={size}")),
        },
        _ => untyped(format!("output_size={value}")),
    };
    match value.parts() {
        Some([one]) => Ok([size(one)?; N]),
        None => Ok([size(value)?; N]),
        Some(parts) => {
            let sizes = parts.iter().map(size).collect::<Called<Vec<_>>>()?;
            <[_; N]>::try_from(sizes).or_else(|_| untyped(format!("output_size={value}")))
        }
    }
}

/// The sizes, or ratios of sizes, of a fractional pooling.
///
/// # Errors
/// Fails if an argument is missing or of another type.
pub fn fractional<const N: usize>(c: &Call) -> Called<FractionalSize<N>> {
    if c.has("output_size") {
        return c.each("output_size").map(FractionalSize::Size);
    }
    let mut ratios = c.floats("output_ratio")?;
    if ratios.len() == 1 {
        ratios = vec![ratios[0]; N];
    }
    match <[f64; N]>::try_from(ratios) {
        Ok(ratios) => Ok(FractionalSize::Ratio(ratios)),
        Err(ratios) => missing(format!("output_ratio={ratios:?}")),
    }
}

fn first_or_both(c: &Call, (values, indices): (Tensor, Tensor)) -> Called<Output> {
    Ok(match c.bool("return_indices")? {
        true => (values, indices).into(),
        false => values.into(),
    })
}

type Convolution<O> = fn(&Tensor, &Tensor, Option<&Tensor>, &O) -> RusTorchResult<Tensor>;

fn convolved<const N: usize>(c: &Call, function: Convolution<ConvOptions<N>>) -> Called<Tensor> {
    let options = conv_options(c)?;
    Ok(function(c.input()?, c.tensor("weight")?, c.optional("bias")?, &options)?)
}

/// The options of a convolution.
///
/// # Errors
/// Fails if an argument is missing or of another type.
pub fn conv_options<const N: usize>(c: &Call) -> Called<ConvOptions<N>> {
    let padding = match c.value("padding")? {
        Value::Text(text) if text == "same" => ConvPadding::Same,
        Value::Text(text) if text == "valid" => ConvPadding::Valid,
        _ => ConvPadding::Each(c.each("padding")?),
    };
    Ok(ConvOptions {
        stride: c.each("stride")?,
        padding,
        dilation: c.each("dilation")?,
        groups: c.int("groups")?,
    })
}

fn transposed<const N: usize>(
    c: &Call,
    function: Convolution<ConvTransposeOptions<N>>,
) -> Called<Tensor> {
    let options = conv_transpose_options(c)?;
    Ok(function(c.input()?, c.tensor("weight")?, c.optional("bias")?, &options)?)
}

/// The options of a transposed convolution.
///
/// # Errors
/// Fails if an argument is missing or of another type.
pub fn conv_transpose_options<const N: usize>(c: &Call) -> Called<ConvTransposeOptions<N>> {
    Ok(ConvTransposeOptions {
        stride: c.each("stride")?,
        padding: c.each("padding")?,
        output_padding: c.each("output_padding")?,
        dilation: c.each("dilation")?,
        groups: c.int("groups")?,
    })
}

type Unpooling<const N: usize> = fn(
    &Tensor,
    &Tensor,
    [usize; N],
    &MaxPoolOptions<N>,
    Option<[usize; N]>,
) -> RusTorchResult<Tensor>;

fn unpooled<const N: usize>(c: &Call, function: Unpooling<N>) -> Called<Tensor> {
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

/// The size that images are given.
fn resized(c: &Call, size: &str, scale: &str) -> Called<InterpolateSize> {
    match (c.has(size), c.has(scale)) {
        (true, false) => Ok(InterpolateSize::Size(c.ints(size)?)),
        (false, true) => c.floats(scale).map(InterpolateSize::Scale),
        _ => missing(format!("{size} and {scale}")),
    }
}

fn sampled(c: &Call) -> Called<Tensor> {
    // By names, or by PyTorch's numbers of them.
    let name = |name: &str| -> Called<String> {
        match c.value(name)? {
            Value::Text(text) => Ok(text.clone()),
            value => Ok(value.to_string()),
        }
    };
    let options = GridSampleOptions {
        mode: match name("mode")?.as_str() {
            "bilinear" | "0" => GridSampleMode::Bilinear,
            "nearest" | "1" => GridSampleMode::Nearest,
            "bicubic" | "2" => GridSampleMode::Bicubic,
            other => return missing(format!("mode={other}")),
        },
        padding: match name("padding_mode")?.as_str() {
            "zeros" | "0" => GridSamplePadding::Zeros,
            "border" | "1" => GridSamplePadding::Border,
            "reflection" | "2" => GridSamplePadding::Reflection,
            other => return missing(format!("padding_mode={other}")),
        },
        align_corners: c.has("align_corners") && c.bool("align_corners")?,
    };
    Ok(c.input()?.grid_sample(c.tensor("grid")?, &options)?)
}
