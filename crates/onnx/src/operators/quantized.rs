//! ONNX's operators on numbers that stand for `(q - zero point) · scale`.

use rustorch_dispatch::{Call, Called, missing};
use rustorch_ir::DType;
use rustorch_tensor::Tensor;
use rustorch_tensor::nn::ConvOptions;

use super::axis;
use super::layers::pads;
use crate::narrow::Narrow;

rustorch_dispatch::table! {
    "ConvInteger", CONV_INTEGER, |c| {
        let x = centred(c, "x", "x_zero_point")?;
        let w = centred(c, "w", "w_zero_point")?;
        convolved(c, &x, &w)?.to_dtype(DType::I32)?
    };
    "DequantizeLinear", "x, x_scale, x_zero_point=None, axis=1, block_size=0, output_dtype=0", |c| {
        let (x, scale) = (c.input()?, c.tensor("x_scale")?);
        let mut y = x.to_dtype(DType::F32)?;
        if let Some(zero) = c.optional("x_zero_point")? {
            y = y.sub(&along(c, &zero.to_dtype(DType::F32)?)?)?;
        }
        y.mul(&along(c, &scale.to_dtype(DType::F32)?)?)?.to_dtype(scale.dtype())?
    };
    "DynamicQuantizeLinear", "x", |c| {
        let x = c.input()?;
        let (low, high) = (x.min(None, false)?.clamp_max(0.0)?, x.max(None, false)?.clamp_min(0.0)?);
        let scale = high.sub(&low)?.div(255.0)?;
        let zero = low.neg()?.div(&scale)?.clamp(0.0, 255.0)?.round()?;
        let y = x.div(&scale)?.round()?.add(&zero)?.clamp(0.0, 255.0)?;
        (y.to_dtype(DType::U8)?, scale, zero.to_dtype(DType::U8)?)
    };
    "MatMulInteger", "A, B, a_zero_point=None, b_zero_point=None", |c| {
        let (a, b) = (centred(c, "A", "a_zero_point")?, centred(c, "B", "b_zero_point")?);
        a.matmul(&b)?.to_dtype(DType::I32)?
    };
    "QLinearConv", Q_LINEAR_CONV, |c| {
        let (x, w) = (centred(c, "x", "x_zero_point")?, centred(c, "w", "w_zero_point")?);
        requantized(c, &convolved(c, &x, &w)?, "x_scale", "w_scale")?
    };
    "QLinearMatMul", Q_LINEAR_MAT_MUL, |c| {
        let (a, b) = (centred(c, "a", "a_zero_point")?, centred(c, "b", "b_zero_point")?);
        requantized(c, &a.matmul(&b)?, "a_scale", "b_scale")?
    };
    "QuantizeLinear", QUANTIZE, |c| {
        let zero = c.optional("y_zero_point")?;
        if let Some(narrow) = Narrow::of(c.int("output_dtype")?) {
            let scaled = c.input()?.div(&along(c, c.tensor("y_scale")?)?)?;
            let zero = zero.map(|zero| along(c, &zero.to_dtype(scaled.dtype())?)).transpose()?;
            return Ok(narrow.quantized(&scaled, zero.as_ref())?.into());
        }
        let dtype = match (zero, c.int("output_dtype")?) {
            (Some(zero), _) => zero.dtype(),
            (None, 0) => DType::U8,
            (None, number) => super::dtype(number)?,
        };
        let scaled = c.input()?.div(&along(c, c.tensor("y_scale")?)?)?;
        match (dtype.is_int(), zero) {
            (true, Some(zero)) => {
                let zero = along(c, &zero.to_dtype(scaled.dtype())?)?;
                saturated(&scaled.round()?.add(&zero)?, dtype)?
            }
            (true, None) => saturated(&scaled.round()?, dtype)?,
            (false, _) => match dtype {
                DType::F8E5M2 => scaled.clamp(-57344.0, 57344.0)?.to_dtype(dtype)?,
                _ => scaled.to_dtype(dtype)?,
            },
        }
    };
}

const CONV_INTEGER: &str = "x, w, x_zero_point=None, w_zero_point=None, strides=1, pads=None, \
     dilations=1, group=1, kernel_shape=None, auto_pad='NOTSET'";
const Q_LINEAR_CONV: &str = "x, x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, \
     y_zero_point, B=None, strides=1, pads=None, dilations=1, group=1, kernel_shape=None, \
     auto_pad='NOTSET'";
const Q_LINEAR_MAT_MUL: &str = "a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, \
     y_zero_point";
const QUANTIZE: &str = "x, y_scale, y_zero_point=None, axis=1, block_size=0, output_dtype=0, \
     precision=0, saturate=1";

/// A scale or zero point for the first argument: one, one for each index of an axis, or for blocks
/// along it.
fn along(c: &Call, parameter: &Tensor) -> Called<Tensor> {
    let x = c.input()?;
    let block: usize = c.int("block_size")?;
    if block > 0 {
        let axis = axis(c, x.rank())?;
        let each = parameter.repeat_interleave(block, axis as isize)?;
        return Ok(each.narrow(axis as isize, 0, x.shape()[axis])?);
    }
    if parameter.numel() == 1 {
        return Ok(parameter.reshape([0usize; 0])?);
    }
    let mut shape = vec![1; x.rank()];
    shape[axis(c, x.rank())?] = parameter.numel();
    Ok(parameter.reshape(shape)?)
}

/// Integers less their zero point, exact in `f64`. If there are several zero points, each is for
/// one filter.
fn centred(c: &Call, name: &str, zero: &str) -> Called<Tensor> {
    let x = c.tensor(name)?.to_dtype(DType::F64)?;
    let Some(zero) = c.optional(zero)? else {
        return Ok(x);
    };
    let zero = zero.to_dtype(DType::F64)?;
    let zero = match zero.numel() {
        1 => zero.reshape([0usize; 0])?,
        filters => {
            let mut shape = vec![1; x.rank().max(1)];
            shape[0] = filters;
            zero.reshape(shape)?
        }
    };
    Ok(x.sub(&zero)?)
}

fn convolved(c: &Call, x: &Tensor, w: &Tensor) -> Called<Tensor> {
    if x.rank() != 4 || c.text("auto_pad")? != "NOTSET" {
        return missing("other than images with padding that is given");
    }
    let options = ConvOptions {
        stride: c.each("strides")?,
        padding: pads(c)?.into(),
        dilation: c.each("dilations")?,
        groups: c.int("group")?,
    };
    Ok(x.conv2d(w, None, &options)?)
}

/// A product of two operands' real values, quantised again.
fn requantized(c: &Call, product: &Tensor, a: &str, b: &str) -> Called<Tensor> {
    let scale = |name: &str| -> Called<f64> { c.float(name) };
    let factor = scale(a)? * scale(b)? / scale("y_scale")?;
    let zero = c.tensor("y_zero_point")?;
    let y = product.mul(factor)?.round()?;
    saturated(&y.add(c.float("y_zero_point")?)?, zero.dtype())
}

/// Whole numbers in the range of an integer dtype.
fn saturated(x: &Tensor, dtype: DType) -> Called<Tensor> {
    let (low, high) = match dtype {
        DType::U8 => (0.0, 255.0),
        DType::I8 => (-128.0, 127.0),
        DType::U16 => (0.0, 65535.0),
        DType::I16 => (-32768.0, 32767.0),
        other => return missing(format!("quantised to {other}")),
    };
    Ok(x.clamp(low, high)?.to_dtype(dtype)?)
}
