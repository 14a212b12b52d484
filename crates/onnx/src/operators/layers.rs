//! ONNX's activations, norms, windows over images, and losses.

use rustorch_dispatch::{Call, Called, Output, Value, missing};
use rustorch_ir::DType;
use rustorch_tensor::nn::{
    AvgPoolOptions, CrossEntropyOptions, GridSampleMode, GridSampleOptions, GridSamplePadding,
    MaxPoolOptions, Reduction,
};
use rustorch_tensor::{RoundingMode, RusTorchResult, Tensor, windows};

use super::lines::Windows;
use super::{positive, positives, split};

rustorch_dispatch::table! {
    "AveragePool", AVERAGE_POOL, |c| match c.input()?.rank() {
        3 => averaged(c, Tensor::avg_pool1d)?,
        4 => averaged(c, Tensor::avg_pool2d)?,
        _ => averaged(c, Tensor::avg_pool3d)?,
    };
    "BlackmanWindow", WINDOW, |c| windows::blackman(c.int("size")?, !c.bool("periodic")?, window_dtype(c)?)?;
    "Celu", "X, alpha=1.0", |c| c.input()?.celu(c.float("alpha")?)?;
    "DepthToSpace", "input, blocksize, mode='DCR'", |c| {
        let (x, block) = (c.input()?, positive(c, "blocksize")?);
        match (c.text("mode")?, x.shape()) {
            ("DCR", &[n, channels, h, w]) => {
                let apart = x.reshape([n, block, block, channels / block / block, h, w])?;
                let [channels, height, width] = [apart.shape()[3], h * block, w * block];
                apart.permute([0, 3, 4, 1, 5, 2])?.reshape([n, channels, height, width])?
            }
            _ => x.pixel_shuffle(block)?,
        }
    };
    "Dropout", "data, ratio=0.5, training_mode=False, *, seed=None", |c| {
        let x = c.input()?;
        let is_training = c.has("training_mode") && c.float("training_mode")? != 0.0;
        let ratio = if c.has("ratio") { c.float("ratio")? } else { 0.5 };
        if is_training && ratio != 0.0 {
            return missing("random numbers that others draw");
        }
        let kept = Tensor::ones(x.shape(), DType::Bool)?;
        let all = vec![Output::Tensor(x.clone()), kept.into()];
        Output::List(all.into_iter().take(c.results).collect())
    };
    "Elu", "X, alpha=1.0", |c| c.input()?.elu(c.float("alpha")?)?;
    "GridSample", "X, grid, mode='linear', padding_mode='zeros', align_corners=0", |c| {
        let options = GridSampleOptions {
            mode: match c.text("mode")? {
                "linear" | "bilinear" => GridSampleMode::Bilinear,
                "nearest" => GridSampleMode::Nearest,
                _ => GridSampleMode::Bicubic,
            },
            padding: match c.text("padding_mode")? {
                "border" => GridSamplePadding::Border,
                "reflection" => GridSamplePadding::Reflection,
                _ => GridSamplePadding::Zeros,
            },
            align_corners: c.bool("align_corners")?,
        };
        c.input()?.grid_sample(c.tensor("grid")?, &options)?
    };
    "GroupNormalization", "X, scale, bias, epsilon=1e-05, num_groups, stash_type=1", |c| {
        let (scale, bias) = (c.optional("scale")?, c.optional("bias")?);
        c.input()?.group_norm(c.int("num_groups")?, scale, bias, c.float("epsilon")?)?
    };
    "HammingWindow", WINDOW, |c| {
        windows::hamming(c.int("size")?, 25.0 / 46.0, !c.bool("periodic")?, window_dtype(c)?)?
    };
    "HannWindow", WINDOW, |c| windows::hann(c.int("size")?, !c.bool("periodic")?, window_dtype(c)?)?;
    "HardSigmoid", "X, alpha=0.2, beta=0.5", |c| {
        c.input()?.mul(c.float("alpha")?)?.add(c.float("beta")?)?.clamp(0.0, 1.0)?
    };
    "HardSwish", "X", |c| c.input()?.hardswish()?;
    "Hardmax", "input, axis=-1", |c| hardmax(c.input()?, c.int("axis")?)?;
    "InstanceNormalization", "input, scale, B, epsilon=1e-05", |c| {
        c.input()?.instance_norm(None, c.optional("scale")?, c.optional("B")?, c.float("epsilon")?)?
    };
    "LRN", "X, alpha=0.0001, beta=0.75, bias=1.0, size", |c| {
        let (alpha, beta) = (c.float("alpha")?, c.float("beta")?);
        c.input()?.local_response_norm(c.int("size")?, alpha, beta, c.float("bias")?)?
    };
    "LayerNormalization", "X, Scale, B=None, axis=-1, epsilon=1e-05, stash_type=1", |c| {
        let x = c.input()?;
        let shape = x.shape()[split(c, x.rank())?..].to_vec();
        let (scale, bias, eps) = (c.optional("Scale")?, c.optional("B")?, c.float("epsilon")?);
        match c.results {
            1 => Output::from(x.layer_norm(shape, scale, bias, eps)?),
            _ => x.native_layer_norm(shape, scale, bias, eps)?.into(),
        }
    };
    "LeakyRelu", "X, alpha=0.01", |c| c.input()?.leaky_relu(c.float("alpha")?)?;
    "LpNormalization", "input, axis=-1, p=2", |c| {
        let (x, axis) = (c.input()?, c.int::<isize>("axis")?);
        let norm = x.norm(c.float("p")?, axis, true)?;
        // Vectors of zeros stay so.
        x.div(&Tensor::where_(&norm.eq(0.0)?, 1.0, &norm)?)?
    };
    "MaxPool", MAX_POOL, |c| match c.input()?.rank() {
        4 if c.results > 1 => return largest_with_places(c),
        3 => largest(c, Tensor::max_pool1d)?,
        4 => largest(c, Tensor::max_pool2d)?,
        _ => largest(c, Tensor::max_pool3d)?,
    };
    "MelWeightMatrix", MEL_WEIGHTS, |c| mel_weights(c)?;
    "MeanVarianceNormalization", "X, axes=None", |c| {
        let axes = if c.has("axes") { c.ints("axes")? } else { vec![0isize, 2, 3] };
        let centred = c.input()?.sub(&c.input()?.mean(&axes[..], true)?)?;
        let deviation = centred.square()?.mean(&axes[..], true)?.sqrt()?;
        centred.div(&deviation.add(1e-9)?)?
    };
    "Mish", "X", |c| c.input()?.mish()?;
    "NegativeLogLikelihoodLoss", "input, target, weight=None, *, ignore_index=-100, reduction='mean'", |c| {
        let (target, weight) = (c.tensor("target")?, c.optional("weight")?);
        let target = target.to_dtype(DType::I64)?;
        c.input()?.nll_loss(&target, weight, c.int("ignore_index")?, reduction(c)?)?
    };
    "PRelu", "X, slope", |c| {
        let x = c.input()?;
        Tensor::where_(&x.lt(0)?, &x.mul(c.tensor("slope")?)?, x)?
    };
    "Selu", "X, alpha=1.6732632423543772, gamma=1.0507009873554805", |c| {
        c.input()?.elu(c.float("alpha")?)?.mul(c.float("gamma")?)?
    };
    "Shrink", "input, bias=0.0, lambd=0.5", |c| {
        let (x, bias, bound) = (c.input()?, c.float("bias")?, c.float("lambd")?);
        let below = Tensor::where_(&x.lt(-bound)?, &x.add(bias)?, 0.0)?;
        Tensor::where_(&x.gt(bound)?, &x.sub(bias)?, &below)?.to_dtype(x.dtype())?
    };
    "SoftmaxCrossEntropyLoss", "scores, labels, weights=None, *, ignore_index=-100, reduction='mean'", |c| {
        let options = CrossEntropyOptions {
            weight: c.optional("weights")?,
            ignore_index: c.int("ignore_index")?,
            reduction: reduction(c)?,
            ..Default::default()
        };
        let labels = c.tensor("labels")?.to_dtype(DType::I64)?;
        let loss = c.input()?.cross_entropy(&labels, &options)?;
        match c.results {
            1 => Output::from(loss),
            _ => (loss, c.input()?.log_softmax(1)?).into(),
        }
    };
    "Softplus", "X", |c| c.input()?.softplus(1.0, f64::INFINITY)?;
    "Softsign", "input", |c| c.input()?.softsign()?;
    "SpaceToDepth", "input, blocksize", |c| {
        let (x, block) = (c.input()?, positive(c, "blocksize")?);
        let &[n, channels, h, w] = x.shape() else {
            return missing("other than images");
        };
        let apart = x.reshape([n, channels, h / block, block, w / block, block])?;
        let columns = apart.permute([0, 3, 5, 1, 2, 4])?;
        columns.reshape([n, channels * block * block, h / block, w / block])?
    };
    "Swish", "X, alpha=1.0", |c| c.input()?.mul(&c.input()?.mul(c.float("alpha")?)?.sigmoid()?)?;
    "ThresholdedRelu", "X, alpha=1.0", |c| {
        let alpha = c.float("alpha")?;
        Tensor::where_(&c.input()?.gt(alpha)?, c.input()?, 0.0)?
    };
}

const AVERAGE_POOL: &str = "X, kernel_shape, strides=1, pads=None, dilations=1, ceil_mode=0, \
     count_include_pad=0, auto_pad='NOTSET'";
const MAX_POOL: &str = "X, kernel_shape, strides=1, pads=None, dilations=1, ceil_mode=0, \
     storage_order=0, auto_pad='NOTSET'";
const MEL_WEIGHTS: &str = "num_mel_bins, dft_length, sample_rate, lower_edge_hertz, \
     upper_edge_hertz, *, output_datatype=1";
const WINDOW: &str = "size, output_datatype=1, periodic=1";

/// 1 at the largest element, the first of several, and 0 elsewhere.
pub(super) fn hardmax(x: &Tensor, axis: isize) -> Called<Tensor> {
    let best = x.argmax(Some(axis), true)?;
    Ok(x.zeros_like()?.scatter(axis, &best, 1.0)?)
}

/// `[frequencies, bins]`: the weight of each frequency of a spectrum in bins that are evenly apart by
/// pitch. Weights rise to each bin's middle and fall behind it.
fn mel_weights(c: &Call) -> Called<Tensor> {
    let (bins, length) = (c.int::<u16>("num_mel_bins")?, c.int::<u32>("dft_length")?);
    let (bins, length) = (i64::from(bins), i64::from(length));
    let rate = c.float("sample_rate")?;
    let mel = |hertz: f64| 2595.0 * (1.0 + hertz / 700.0).log10();
    let (low, high) = (
        mel(c.float("lower_edge_hertz")?),
        mel(c.float("upper_edge_hertz")?),
    );
    let edge = |at: i64| {
        let pitch = low + at as f64 * (high - low) / (bins + 2) as f64;
        let hertz = 700.0 * (10f64.powf(pitch / 2595.0) - 1.0);
        ((length + 1) as f64 * hertz / rate).floor()
    };
    let edges = |from: i64| -> Called<Tensor> {
        let edges: Vec<f64> = (from..from + bins).map(edge).collect();
        Ok(Tensor::from_vec(edges, [bins as usize])?)
    };
    let [left, middle, right] = [edges(0)?, edges(1)?, edges(2)?];
    let at = Tensor::arange_with(0.0, (length / 2 + 1) as f64, 1.0, DType::F64)?.unsqueeze(1)?;
    // Without a rise, the middle counts whole.
    let rise = at.sub(&left)?.div(&middle.sub(&left)?)?;
    let rise = Tensor::where_(&middle.eq(&left)?, 1.0, &rise)?;
    let fall = right.sub(&at)?.div(&right.sub(&middle)?)?;
    let rises = at.ge(&left)?.logical_and(&at.le(&middle)?)?;
    let falls = at.ge(&middle)?.logical_and(&at.lt(&right)?)?;
    let weights = Tensor::where_(&rises, &rise, 0.0)?;
    let weights = Tensor::where_(&falls, &fall, &weights)?;
    Ok(weights.to_dtype(super::dtype(c.int("output_datatype")?)?)?)
}

fn window_dtype(c: &Call) -> Called<DType> {
    super::dtype(c.int("output_datatype")?)
}

/// The operand with `value` around it, and the padding that is the same on both sides. Values are
/// needed if padding differs from side to side. They are also needed if it is more than half of a
/// window.
pub(super) fn surrounded<const N: usize>(c: &Call, value: f64) -> Called<(Tensor, [usize; N])> {
    let x = c.input()?;
    let sizes: [usize; N] = match c.has("kernel_shape") {
        true => positives(c, "kernel_shape")?,
        false => match c.tensor("W")?.shape().last_chunk() {
            Some(&sizes) => sizes,
            None => return missing("weights of fewer dimensions than the windows"),
        },
    };
    if x.rank() != N + 2 {
        return missing("other dimensions than those of the windows");
    }
    let (strides, dilations) = (
        positives::<N>(c, "strides")?,
        positives::<N>(c, "dilations")?,
    );
    let is_behind = match c.text("auto_pad")? {
        "SAME_UPPER" => true,
        "SAME_LOWER" => false,
        _ => {
            let given: Vec<usize> = if c.has("pads") {
                c.ints("pads")?
            } else {
                vec![0; 2 * N]
            };
            if given.len() != 2 * N {
                return missing(format!("pads={given:?}"));
            }
            let is_even = (0..N).all(|i| given[i] == given[N + i] && given[i] <= sizes[i] / 2);
            return match is_even {
                true => Ok((x.clone(), pads(c)?)),
                false => around(x, value, |i| [given[i], given[N + i]]),
            };
        }
    };
    around(x, value, |i| {
        let size = x.shape()[2 + i];
        let total = missing_for_same(size, sizes[i], strides[i], dilations[i]);
        match is_behind {
            true => [total / 2, total.div_ceil(2)],
            false => [total.div_ceil(2), total / 2],
        }
    })
}

/// The padding of windows of which there are as many as elements, or one for each stride.
pub(super) fn missing_for_same(from: usize, size: usize, stride: usize, dilation: usize) -> usize {
    let reach = from
        .div_ceil(stride)
        .saturating_sub(1)
        .saturating_mul(stride);
    let window = size
        .saturating_sub(1)
        .saturating_mul(dilation)
        .saturating_add(1);
    reach.saturating_add(window).saturating_sub(from)
}

fn around<const N: usize>(
    x: &Tensor,
    value: f64,
    sides: impl Fn(usize) -> [usize; 2],
) -> Called<(Tensor, [usize; N])> {
    let pairs: Vec<usize> = (0..N).rev().flat_map(sides).collect();
    Ok((x.pad(pairs, value)?, [0; N]))
}

/// Padding that is the same on both sides.
pub(super) fn pads<const N: usize>(c: &Call) -> Called<[usize; N]> {
    if !matches!(c.text("auto_pad")?, "NOTSET" | "VALID") {
        return missing(format!("auto_pad={}", c.text("auto_pad")?));
    }
    if c.input()?.rank() != N + 2 {
        return missing("other dimensions than those of the windows");
    }
    if !c.has("pads") {
        return Ok([0; N]);
    }
    let pads = c.ints("pads")?;
    let (before, behind) = pads.split_at(pads.len() / 2);
    match <[usize; N]>::try_from(before) {
        Ok(pads) if before == behind => Ok(pads),
        _ => missing("padding that differs from side to side"),
    }
}

type Pooling<O, const N: usize> = fn(&Tensor, [usize; N], &O) -> RusTorchResult<Tensor>;

fn averaged<const N: usize>(c: &Call, pool: Pooling<AvgPoolOptions<N>, N>) -> Called<Tensor> {
    let half = c.each::<N>("kernel_shape")?.map(|size| size / 2);
    let padding = match pads(c) {
        Ok(pads) if pads.iter().zip(&half).all(|(pad, half)| pad <= half) => Some(pads),
        _ => None,
    };
    let Some(padding) = padding.filter(|_| c.each::<N>("dilations").is_ok_and(|d| d == [1; N]))
    else {
        return averaged_by_hand(c);
    };
    let options = AvgPoolOptions {
        stride: Some(c.each("strides")?),
        padding,
        ceil_mode: c.bool("ceil_mode")?,
        count_include_pad: c.bool("count_include_pad")?,
        divisor_override: None,
    };
    Ok(pool(c.input()?, c.each("kernel_shape")?, &options)?)
}

/// Windows that PyTorch has no pooling for.
fn averaged_by_hand(c: &Call) -> Called<Tensor> {
    let x = c.input()?;
    let windows = Windows::of(c)?;
    let (sums, counts) = windows.sums(&x.to_dtype(DType::F64)?)?;
    let counts = match c.bool("count_include_pad")? {
        true => windows.counts_with_padding(x.shape())?,
        false => counts,
    };
    Ok(sums.div(&counts)?.to_dtype(x.dtype())?)
}

fn largest<const N: usize>(c: &Call, pool: Pooling<MaxPoolOptions<N>, N>) -> Called<Tensor> {
    if c.results > 1 {
        return missing("places in other than images");
    }
    let (x, padding) = surrounded(c, f64::NEG_INFINITY)?;
    Ok(pool(&x, c.each("kernel_shape")?, &windows(c, padding)?)?)
}

fn windows<const N: usize>(c: &Call, padding: [usize; N]) -> Called<MaxPoolOptions<N>> {
    Ok(MaxPoolOptions {
        stride: Some(c.each("strides")?),
        padding,
        dilation: c.each("dilations")?,
        ceil_mode: c.bool("ceil_mode")?,
    })
}

/// The largest of images' windows, and their places among all elements, in which rows or columns come
/// first.
fn largest_with_places(c: &Call) -> Called<Output> {
    let (x, options) = (c.input()?, windows(c, pads(c)?)?);
    let (values, places) = x.max_pool2d_with_indices(c.each("kernel_shape")?, &options)?;
    let [images, height, width] = [x.shape()[0] * x.shape()[1], x.shape()[2], x.shape()[3]];
    let [height, width] = [height as i64, width as i64];
    let places = match c.bool("storage_order")? {
        false => places,
        true => {
            let row = places.div_mode(width, RoundingMode::Floor)?;
            places.remainder(width)?.mul(height)?.add(&row)?
        }
    };
    let first = Tensor::arange_with(0, images as i64, 1, DType::I64)?.mul(height * width)?;
    let first = first.reshape([x.shape()[0], x.shape()[1], 1, 1])?;
    Ok((values, places.add(&first)?).into())
}

fn reduction(c: &Call) -> Called<Reduction> {
    Ok(match c.text("reduction")? {
        "none" => Reduction::None,
        "sum" => Reduction::Sum,
        _ => Reduction::Mean,
    })
}

/// A constant, by the attribute that gives it.
pub(super) fn constant(c: &Call) -> Called<Tensor> {
    let list = |name: &str| c.value(name).map(|value| value.parts().map(<[Value]>::len));
    if c.has("value") {
        return Ok(c.tensor("value")?.clone());
    }
    if let Some(count) = list("value_ints")? {
        return Ok(Tensor::from_vec(c.ints::<i64>("value_ints")?, [count])?);
    }
    if let Some(count) = list("value_floats")? {
        let floats = Tensor::from_vec(c.floats("value_floats")?, [count])?;
        return Ok(floats.to_dtype(DType::F32)?);
    }
    if c.has("value_int") {
        return Ok(Tensor::scalar(c.int::<i64>("value_int")?, DType::I64)?);
    }
    match c.has("value_float") {
        true => Ok(Tensor::scalar(c.float("value_float")?, DType::F32)?),
        false => missing("a constant of another kind"),
    }
}
