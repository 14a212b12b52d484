//! ONNX's operators as calls of RusTorch: inputs and attributes by ONNX's names. Some arguments are
//! attributes in older versions of an operator and inputs in newer ones. They are found by their
//! names.

use rustorch_dispatch::{Call, Called, Output, missing};
use rustorch_ir::{DType, Scalar};
use rustorch_tensor::nn::{BatchNormOptions, ConvOptions, ConvTransposeOptions};
use rustorch_tensor::{Dims, IntoDims, RoundingMode, RusTorchResult, Tensor};

use super::layers::{constant, pads, surrounded};
use super::split;
use crate::narrow::{self, Narrow};

rustorch_dispatch::table! {
    "Abs", "X", |c| c.input()?.abs()?;
    "Acos", "X", |c| c.input()?.acos()?;
    "Acosh", "X", |c| c.input()?.acosh()?;
    "Add", "A, B", |c| c.input()?.add(c.tensor("B")?)?;
    "And", "A, B", |c| c.input()?.logical_and(c.tensor("B")?)?;
    "ArgMax", "data, axis=0, keepdims=1, select_last_index=0", |c| {
        best(c, |x, axis, keep| Ok(x.argmax(axis, keep)?))?
    };
    "ArgMin", "data, axis=0, keepdims=1, select_last_index=0", |c| {
        best(c, |x, axis, keep| Ok(x.argmin(axis, keep)?))?
    };
    "Asin", "X", |c| c.input()?.asin()?;
    "Asinh", "X", |c| c.input()?.asinh()?;
    "Atan", "X", |c| c.input()?.atan()?;
    "Atanh", "X", |c| c.input()?.atanh()?;
    "BatchNormalization", BATCH_NORM, |c| {
        let (mean, var) = (c.tensor("mean")?, c.tensor("var")?);
        let options = BatchNormOptions {
            weight: c.optional("scale")?,
            bias: c.optional("B")?,
            eps: c.float("epsilon")?,
            ..BatchNormOptions::default()
        };
        match c.bool("training_mode")? {
            false => Output::from(c.input()?.batch_norm(Some(mean), Some(var), &options)?),
            true => trained(c, &options)?,
        }
    };
    "BitwiseAnd", "A, B", |c| c.input()?.bitwise_and(c.tensor("B")?)?;
    "BitwiseOr", "A, B", |c| c.input()?.bitwise_or(c.tensor("B")?)?;
    "BitwiseXor", "A, B", |c| c.input()?.bitwise_xor(c.tensor("B")?)?;
    "Cast", "input, to, saturate=1, round_mode='up'", |c| {
        match Narrow::of(c.int("to")?) {
            Some(narrow) => {
                narrow::check_mode(c.text("round_mode")?)?;
                narrow.round(c.input()?, c.bool("saturate")?)?
            }
            None => converted(c, dtype(c, "to")?)?,
        }
    };
    "CastLike", "input, target, saturate=1, round_mode='up'", |c| {
        converted(c, c.tensor("target")?.dtype())?
    };
    "Ceil", "X", |c| c.input()?.ceil()?;
    "Clip", "input, min=None, max=None", |c| clipped(c)?;
    "Concat", "*inputs, *, axis", |c| Tensor::cat(&c.tensors("inputs")?, c.int::<isize>("axis")?)?;
    "Constant", "value=None, value_float=None, value_floats=None, value_int=None, value_ints=None", |c| {
        constant(c)?
    };
    "ConstantOfShape", "shape, value=None", |c| match c.optional("value")? {
        Some(value) => value.reshape([0usize; 0])?.expand(&c.ints::<usize>("shape")?[..])?,
        None => Tensor::zeros(c.ints("shape")?, DType::F32)?,
    };
    "Conv", CONV, |c| match c.input()?.rank() {
        3 => convolved(c, Tensor::conv1d)?,
        4 => convolved(c, Tensor::conv2d)?,
        _ => convolved(c, Tensor::conv3d)?,
    };
    "ConvTranspose", CONV_TRANSPOSE, |c| match c.input()?.rank() {
        3 => transposed(c, Tensor::conv_transpose1d)?,
        4 => transposed(c, Tensor::conv_transpose2d)?,
        _ => transposed(c, Tensor::conv_transpose3d)?,
    };
    "Cos", "X", |c| c.input()?.cos()?;
    "Cosh", "X", |c| c.input()?.cosh()?;
    "Div", "A, B", |c| match c.input()?.dtype().is_float() {
        true => c.input()?.div(c.tensor("B")?)?,
        false => c.input()?.div_mode(c.tensor("B")?, RoundingMode::Trunc)?,
    };
    "Equal", "A, B", |c| c.input()?.eq(c.tensor("B")?)?;
    "Erf", "X", |c| c.input()?.erf()?;
    "Exp", "X", |c| c.input()?.exp()?;
    "Expand", "input, shape", |c| {
        let (x, shape) = (c.input()?, c.ints::<usize>("shape")?);
        // Sizes of 1 keep those of the input.
        x.add(&Tensor::zeros(shape, x.dtype())?)?
    };
    "Flatten", "input, axis=1", |c| {
        let x = c.input()?;
        let (rows, columns) = x.shape().split_at(split(c, x.rank())?);
        x.reshape([rows.iter().product::<usize>(), columns.iter().product()])?
    };
    "Floor", "X", |c| c.input()?.floor()?;
    "GatherElements", "data, indices, axis=0", |c| {
        let (x, axis, index) = (c.input()?, c.int::<isize>("axis")?, c.tensor("indices")?);
        // Negative indices count from the end.
        let from_end = index.add(x.size(axis)? as i64)?;
        x.gather(axis, &Tensor::where_(&index.lt(0)?, &from_end, index)?)?
    };
    "Gelu", "X, approximate='none'", |c| match c.text("approximate")? {
        "tanh" => c.input()?.gelu_tanh()?,
        _ => c.input()?.gelu()?,
    };
    "Gemm", "A, B, C=None, alpha=1.0, beta=1.0, transA=0, transB=0", |c| gemm(c)?;
    "GlobalAveragePool", "X", |c| {
        let dims: Vec<isize> = (2..c.input()?.rank() as isize).collect();
        c.input()?.mean(&dims[..], true)?
    };
    "GlobalMaxPool", "X", |c| {
        let dims: Vec<isize> = (2..c.input()?.rank() as isize).collect();
        c.input()?.max(&dims[..], true)?
    };
    "Greater", "A, B", |c| c.input()?.gt(c.tensor("B")?)?;
    "GreaterOrEqual", "A, B", |c| c.input()?.ge(c.tensor("B")?)?;
    "IsNaN", "X", |c| c.input()?.isnan()?;
    "Less", "A, B", |c| c.input()?.lt(c.tensor("B")?)?;
    "LessOrEqual", "A, B", |c| c.input()?.le(c.tensor("B")?)?;
    "Log", "X", |c| c.input()?.log()?;
    "LogSoftmax", "input, axis=-1", |c| c.input()?.log_softmax(c.int::<isize>("axis")?)?;
    "MatMul", "A, B", |c| c.input()?.matmul(c.tensor("B")?)?;
    "Max", "*data", |c| folded(c, |a, b| Ok(a.maximum(b)?))?;
    "Mean", "*data", |c| {
        let count = c.tensors("data")?.len();
        folded(c, |a, b| Ok(a.add(b)?))?.div(count as f64)?
    };
    "Min", "*data", |c| folded(c, |a, b| Ok(a.minimum(b)?))?;
    "Mod", "A, B, fmod=0", |c| {
        match c.bool("fmod")? {
            true => c.input()?.fmod(c.tensor("B")?)?,
            false => c.input()?.remainder(c.tensor("B")?)?,
        }
    };
    "Mul", "A, B", |c| c.input()?.mul(c.tensor("B")?)?;
    "Neg", "X", |c| c.input()?.neg()?;
    "Not", "X", |c| c.input()?.logical_not()?;
    "Or", "A, B", |c| c.input()?.logical_or(c.tensor("B")?)?;
    "Pow", "X, Y", |c| c.input()?.pow(c.tensor("Y")?)?.to_dtype(c.input()?.dtype())?;
    "RMSNormalization", "X, scale, axis=-1, epsilon=1e-05, stash_type=1", |c| {
        let x = c.input()?;
        let shape = x.shape()[split(c, x.rank())?..].to_vec();
        x.rms_norm(shape, c.optional("scale")?, c.float("epsilon")?)?
    };
    "Range", "start, limit, delta", |c| {
        let dtype = c.input()?.dtype();
        let number = |name| -> Called<Scalar> {
            Ok(match dtype.is_int() {
                true => c.tensor(name)?.to_dtype(DType::I64)?.to_scalar::<i64>()?.into(),
                false => c.float(name)?.into(),
            })
        };
        Tensor::arange_with(number("start")?, number("limit")?, number("delta")?, dtype)?
    };
    "Reciprocal", "X", |c| c.input()?.reciprocal()?;
    "ReduceL1", REDUCE, |c| reduced(c, |x, dims, keep| Ok(x.abs()?.sum(dims, keep)?))?;
    "ReduceL2", REDUCE, |c| reduced(c, |x, dims, keep| Ok(x.square()?.sum(dims, keep)?.sqrt()?))?;
    "ReduceLogSum", REDUCE, |c| reduced(c, |x, dims, keep| Ok(x.sum(dims, keep)?.log()?))?;
    "ReduceLogSumExp", REDUCE, |c| reduced(c, |x, dims, keep| Ok(x.logsumexp(dims, keep)?))?;
    "ReduceMax", REDUCE, |c| extreme(c, f64::NEG_INFINITY, |x, dims, keep| Ok(x.max(dims, keep)?))?;
    "ReduceMean", REDUCE, |c| reduced(c, |x, dims, keep| Ok(x.mean(dims, keep)?))?;
    "ReduceMin", REDUCE, |c| extreme(c, f64::INFINITY, |x, dims, keep| Ok(x.min(dims, keep)?))?;
    "ReduceProd", REDUCE, |c| reduced(c, |x, dims, keep| Ok(x.prod(dims, keep)?))?;
    "ReduceSum", REDUCE, |c| reduced(c, |x, dims, keep| Ok(x.sum(dims, keep)?))?;
    "ReduceSumSquare", REDUCE, |c| reduced(c, |x, dims, keep| Ok(x.square()?.sum(dims, keep)?))?;
    "Relu", "X", |c| c.input()?.relu()?;
    "Reshape", "data, shape, allowzero=0", |c| reshaped(c)?;
    "Round", "X", |c| c.input()?.round()?;
    "Shape", "data, start=0, end=None", |c| {
        let shape: Vec<i64> = c.input()?.shape().iter().map(|&size| size as i64).collect();
        let (rank, [start, end]) = (shape.len(), [c.int("start")?, c.maybe_int("end")?.unwrap_or(isize::MAX)]);
        Tensor::from_vec(shape, [rank])?.slice(0, start, end, 1)?
    };
    "Sigmoid", "X", |c| c.input()?.sigmoid()?;
    "Sign", "X", |c| c.input()?.sign()?;
    "Sin", "X", |c| c.input()?.sin()?;
    "Sinh", "X", |c| c.input()?.sinh()?;
    "Size", "data", |c| Tensor::scalar(c.input()?.numel() as i64, DType::I64)?;
    "Slice", "data, starts, ends, axes=None, steps=None", |c| sliced(c)?;
    "Softmax", "input, axis=-1", |c| c.input()?.softmax(c.int::<isize>("axis")?)?;
    "Sqrt", "X", |c| c.input()?.sqrt()?;
    "Squeeze", "data, axes=None", |c| c.input()?.squeeze(c.dims("axes")?)?;
    "Sub", "A, B", |c| c.input()?.sub(c.tensor("B")?)?;
    "Sum", "*data", |c| folded(c, |a, b| Ok(a.add(b)?))?;
    "Tan", "X", |c| c.input()?.tan()?;
    "Tanh", "X", |c| c.input()?.tanh()?;
    "TopK", "X, K, axis=-1, largest=1, sorted=1", |c| {
        c.input()?.topk(c.int("K")?, c.int::<isize>("axis")?, c.bool("largest")?)?
    };
    "Transpose", "data, perm=None", |c| {
        let rank = c.input()?.rank() as isize;
        match c.has("perm") {
            true => c.input()?.permute(c.ints::<isize>("perm")?)?,
            false => c.input()?.permute((0..rank).rev().collect::<Vec<_>>())?,
        }
    };
    "Unsqueeze", "data, axes", |c| {
        let x = c.input()?;
        let axes = c.ints::<isize>("axes")?;
        let rank = (x.rank() + axes.len()) as isize;
        let mut axes: Vec<isize> = axes.iter().map(|&a| if a < 0 { a + rank } else { a }).collect();
        axes.sort_unstable();
        axes.iter().try_fold(x.clone(), |x, &axis| x.unsqueeze(axis))?
    };
    "Where", "condition, X, Y", |c| {
        Tensor::where_(c.tensor("condition")?, c.operand("X")?, c.operand("Y")?)?
    };
    "Xor", "A, B", |c| c.input()?.logical_xor(c.tensor("B")?)?;
}

const BATCH_NORM: &str = "X, scale, B, mean, var, epsilon=1e-05, momentum=0.9, training_mode=0";
const CONV: &str = "X, W, B=None, strides=1, pads=None, dilations=1, group=1, kernel_shape=None, \
     auto_pad='NOTSET'";
const CONV_TRANSPOSE: &str = "X, W, B=None, strides=1, pads=None, dilations=1, group=1, \
     kernel_shape=None, auto_pad='NOTSET', output_padding=0, output_shape=None";
const REDUCE: &str = "data, axes=None, keepdims=1, noop_with_empty_axes=0";

fn dtype(c: &Call, name: &str) -> Called<DType> {
    super::dtype(c.int(name)?)
}

/// ONNX converts to 8-bit floats in two ways: too large numbers become the largest one, or they
/// become infinite or NaN.
fn converted(c: &Call, dtype: DType) -> Called<Tensor> {
    let (x, saturates) = (c.input()?, c.bool("saturate")?);
    match dtype {
        DType::F8E5M2 if saturates && x.dtype() != dtype => {
            Ok(x.clamp(-57344.0, 57344.0)?.to_dtype(dtype)?)
        }
        // Beyond what is rounded to the largest number, 448.
        DType::F8E4M3 if !saturates => {
            Ok(Tensor::where_(&x.abs()?.gt(464.0)?, f64::NAN, x)?.to_dtype(dtype)?)
        }
        _ => Ok(x.to_dtype(dtype)?),
    }
}

fn clipped(c: &Call) -> Called<Tensor> {
    let x = c.input()?;
    let low = match c.has("min") {
        true => x.maximum(c.operand("min")?)?,
        false => x.clone(),
    };
    Ok(match c.has("max") {
        true => low.minimum(c.operand("max")?)?,
        false => low,
    })
}

type Convolution<O> = fn(&Tensor, &Tensor, Option<&Tensor>, &O) -> RusTorchResult<Tensor>;

fn convolved<const N: usize>(c: &Call, function: Convolution<ConvOptions<N>>) -> Called<Tensor> {
    let (x, padding) = surrounded(c, 0.0)?;
    let parameters = ConvOptions {
        stride: c.each("strides")?,
        padding: padding.into(),
        dilation: c.each("dilations")?,
        groups: c.int("group")?,
    };
    Ok(function(&x, c.tensor("W")?, c.optional("B")?, &parameters)?)
}

fn transposed<const N: usize>(
    c: &Call,
    function: Convolution<ConvTransposeOptions<N>>,
) -> Called<Tensor> {
    let is_same = c.text("auto_pad")?.starts_with("SAME");
    let is_cut = is_same || c.has("output_shape");
    let parameters = ConvTransposeOptions {
        stride: c.each("strides")?,
        padding: if is_cut { [0; N] } else { pads(c)? },
        output_padding: c.each("output_padding")?,
        dilation: c.each("dilations")?,
        groups: c.int("group")?,
    };
    let (x, bias) = (c.input()?, c.optional("B")?);
    let mut y = function(x, c.tensor("W")?, bias, &parameters)?;
    let sizes: Vec<usize> = match is_cut {
        false => return Ok(y),
        true if c.has("output_shape") => c.ints("output_shape")?,
        true => (0..N)
            .map(|i| x.shape()[2 + i].saturating_mul(parameters.stride[i]))
            .collect(),
    };
    let Some(sizes) = sizes.last_chunk::<N>() else {
        return missing(format!("output_shape={sizes:?}"));
    };
    for (i, &size) in sizes.iter().enumerate() {
        let (axis, whole) = (2 + i, y.shape()[2 + i]);
        if size > whole {
            let mut pairs = vec![0; 2 * (N - i)];
            if let Some(behind) = pairs.last_mut() {
                *behind = size - whole;
            }
            y = y.pad(pairs, 0)?;
            continue;
        }
        let cut = whole - size;
        let before = match c.text("auto_pad")? {
            "SAME_UPPER" => cut / 2,
            _ => cut.div_ceil(2),
        };
        y = y.narrow(axis as isize, before, size)?;
    }
    Ok(y)
}

/// By the batch's own mean and variance, which the running ones have a part of.
fn trained(c: &Call, options: &BatchNormOptions) -> Called<Output> {
    let x = c.input()?;
    let dims: Vec<isize> = (0..x.rank() as isize).filter(|&dim| dim != 1).collect();
    let (mean, var) = (x.mean(&dims[..], false)?, x.var(&dims[..], 0.0, false)?);
    let y = x.batch_norm(Some(&mean), Some(&var), options)?;
    let momentum = c.float("momentum")?;
    let running = |name: &str, of_batch: &Tensor| -> Called<Tensor> {
        Ok(c.tensor(name)?
            .mul(momentum)?
            .add(&of_batch.mul(1.0 - momentum)?)?)
    };
    Ok((y, running("mean", &mean)?, running("var", &var)?).into())
}

fn folded(c: &Call, join: impl Fn(&Tensor, &Tensor) -> Called<Tensor>) -> Called<Tensor> {
    let tensors = c.tensors("data")?;
    match tensors.split_first() {
        Some((first, rest)) => rest.iter().try_fold((*first).clone(), |a, b| join(&a, b)),
        None => missing("no operands"),
    }
}

/// The first of the best elements' indices, or the last.
fn best(c: &Call, of: impl Fn(&Tensor, isize, bool) -> Called<Tensor>) -> Called<Tensor> {
    let (x, axis) = (c.input()?, c.int::<isize>("axis")?);
    match c.bool("select_last_index")? {
        false => of(x, axis, c.bool("keepdims")?),
        true => {
            let from_end = of(&x.flip(axis)?, axis, c.bool("keepdims")?)?;
            Ok(from_end.neg()?.add(x.size(axis)? as i64 - 1)?)
        }
    }
}

fn gemm(c: &Call) -> Called<Tensor> {
    let turned = |name, turn| -> Called<Tensor> {
        match c.bool(turn)? {
            true => Ok(c.tensor(name)?.t()?),
            false => Ok(c.tensor(name)?.clone()),
        }
    };
    let product = turned("A", "transA")?.matmul(&turned("B", "transB")?)?;
    let product = product.mul(c.scalar("alpha")?)?;
    Ok(match c.optional("C")? {
        Some(bias) => product.add(&bias.mul(c.scalar("beta")?)?)?,
        None => product,
    })
}

fn reduced(c: &Call, reduce: impl Fn(&Tensor, Dims, bool) -> Called<Tensor>) -> Called<Tensor> {
    let axes: Option<Vec<isize>> = match c.has("axes") {
        true => Some(c.ints("axes")?).filter(|axes| !axes.is_empty()),
        false => None,
    };
    let x = c.input()?;
    match axes {
        None if c.bool("noop_with_empty_axes")? => Ok(x.clone()),
        None => reduce(x, None.into_dims(), c.bool("keepdims")?),
        Some(axes) => reduce(x, axes.into_dims(), c.bool("keepdims")?),
    }
}

/// Without elements the result is `none`.
fn extreme(
    c: &Call,
    none: f64,
    reduce: impl Fn(&Tensor, Dims, bool) -> Called<Tensor>,
) -> Called<Tensor> {
    reduced(c, |x, dims, keep| match x.numel() {
        0 => Ok(x.sum(dims, keep)?.full_like(none)?),
        _ => reduce(x, dims, keep),
    })
}

/// Sizes of 0 keep those of the input, unless they are allowed.
fn reshaped(c: &Call) -> Called<Tensor> {
    let (x, mut shape) = (c.input()?, c.ints::<isize>("shape")?);
    if !c.bool("allowzero")? {
        for (size, &kept) in shape.iter_mut().zip(x.shape()) {
            *size = if *size == 0 { kept as isize } else { *size };
        }
    }
    Ok(x.reshape(&shape[..])?)
}

fn sliced(c: &Call) -> Called<Tensor> {
    let (starts, ends) = (c.ints::<isize>("starts")?, c.ints::<isize>("ends")?);
    let axes = match c.has("axes") {
        true => c.ints("axes")?,
        false => (0..starts.len() as isize).collect(),
    };
    let steps = match c.has("steps") {
        true => c.ints("steps")?,
        false => vec![1; starts.len()],
    };
    let mut x = c.input()?.clone();
    for (((&axis, &start), &end), &step) in axes.iter().zip(&starts).zip(&ends).zip(&steps) {
        x = match usize::try_from(step) {
            Ok(step) => x.slice(axis, start, end, step)?,
            Err(_) => backwards(&x, axis, [start, end], step)?,
        };
    }
    Ok(x)
}

/// A slice from `start` down to, but without, `end`.
fn backwards(x: &Tensor, axis: isize, [start, end]: [isize; 2], step: isize) -> Called<Tensor> {
    let size = x.size(axis)? as isize;
    let bounded = |at: isize| {
        let at = if at < 0 { at.saturating_add(size) } else { at };
        at.clamp(-1, size - 1)
    };
    let (start, end) = (bounded(start), bounded(end));
    let places = Tensor::arange_with(start as i64, end.min(start) as i64, step as i64, DType::I64)?;
    Ok(x.index_select(axis, &places)?)
}
