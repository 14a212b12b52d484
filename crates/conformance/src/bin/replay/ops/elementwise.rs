//! Functions of each element.

use rustorch_ir::{DType, Scalar};
use rustorch_tensor::{Operand, Tensor};

use crate::call::{Call, Found, missing};

table! {
    "abs", "input", |c| c.input()?.abs()?;
    "acos", "input", |c| c.input()?.acos()?;
    "acosh", "input", |c| c.input()?.acosh()?;
    "add", "input, other, *, alpha=1", |c| c.input()?.add(scaled(c)?.operand(c)?)?;
    "asin", "input", |c| c.input()?.asin()?;
    "asinh", "input", |c| c.input()?.asinh()?;
    "atan", "input", |c| c.input()?.atan()?;
    "atanh", "input", |c| c.input()?.atanh()?;
    "bfloat16", "input, *, memory_format=None", |c| c.input()?.to_dtype(DType::BF16)?;
    "bitwise_and", "input, other", |c| c.input()?.bitwise_and(c.operand("other")?)?;
    "bitwise_or", "input, other", |c| c.input()?.bitwise_or(c.operand("other")?)?;
    "bitwise_xor", "input, other", |c| c.input()?.bitwise_xor(c.operand("other")?)?;
    "bool", "input, *, memory_format=None", |c| c.input()?.to_dtype(DType::Bool)?;
    "byte", "input, *, memory_format=None", |c| c.input()?.to_dtype(DType::U8)?;
    "cdouble", "input, *, memory_format=None", |c| {
        c.input()?.to_dtype(DType::Complex128)?
    };
    "ceil", "input", |c| c.input()?.ceil()?;
    "cfloat", "input, *, memory_format=None", |c| {
        c.input()?.to_dtype(DType::Complex64)?
    };
    "char", "input, *, memory_format=None", |c| c.input()?.to_dtype(DType::I8)?;
    "clamp", "input, min=None, max=None", |c| clamped(c)?;
    "clamp_max", "input, max", |c| c.input()?.minimum(c.operand("max")?)?;
    "clamp_min", "input, min", |c| c.input()?.maximum(c.operand("min")?)?;
    "clone", "input, *, memory_format=None", |c| c.input()?;
    "complex", "real, imag", |c| Tensor::complex(c.tensor("real")?, c.tensor("imag")?)?;
    "conj", "input", |c| c.input()?.conj()?;
    "conj_physical", "input", |c| c.input()?.conj()?;
    "cos", "input", |c| c.input()?.cos()?;
    "cosh", "input", |c| c.input()?.cosh()?;
    "div", "input, other, *, rounding_mode=None", |c| divided(c)?;
    "double", "input, *, memory_format=None", |c| c.input()?.to_dtype(DType::F64)?;
    "eq", "input, other", |c| c.input()?.eq(c.operand("other")?)?;
    "erf", "input", |c| c.input()?.erf()?;
    "exp", "input", |c| c.input()?.exp()?;
    "exp2", "input", |c| c.input()?.exp2()?;
    "float", "input, *, memory_format=None", |c| c.input()?.to_dtype(DType::F32)?;
    "floor", "input", |c| c.input()?.floor()?;
    "floor_divide", "input, other", |c| c.input()?.floor_divide(c.operand("other")?)?;
    "ge", "input, other", |c| c.input()?.ge(c.operand("other")?)?;
    "gt", "input, other", |c| c.input()?.gt(c.operand("other")?)?;
    "half", "input, *, memory_format=None", |c| c.input()?.to_dtype(DType::F16)?;
    "imag", "input", |c| c.input()?.imag()?;
    "int", "input, *, memory_format=None", |c| c.input()?.to_dtype(DType::I32)?;
    "isnan", "input", |c| c.input()?.isnan()?;
    "le", "input, other", |c| c.input()?.le(c.operand("other")?)?;
    "log", "input", |c| c.input()?.log()?;
    "log10", "input", |c| c.input()?.log10()?;
    "log2", "input", |c| c.input()?.log2()?;
    "logical_and", "input, other", |c| c.input()?.logical_and(c.operand("other")?)?;
    "logical_not", "input", |c| c.input()?.logical_not()?;
    "logical_or", "input, other", |c| c.input()?.logical_or(c.operand("other")?)?;
    "logical_xor", "input, other", |c| c.input()?.logical_xor(c.operand("other")?)?;
    "long", "input, *, memory_format=None", |c| c.input()?.to_dtype(DType::I64)?;
    "lt", "input, other", |c| c.input()?.lt(c.operand("other")?)?;
    "masked_fill", "input, mask, value", |c| {
        c.input()?.masked_fill(c.tensor("mask")?, c.operand("value")?)?
    };
    "max.binary", "input, other", |c| c.input()?.maximum(c.tensor("other")?)?;
    "maximum", "input, other", |c| c.input()?.maximum(c.tensor("other")?)?;
    "min.binary", "input, other", |c| c.input()?.minimum(c.tensor("other")?)?;
    "minimum", "input, other", |c| c.input()?.minimum(c.tensor("other")?)?;
    "mul", "input, other", |c| c.input()?.mul(c.operand("other")?)?;
    "ne", "input, other", |c| c.input()?.ne(c.operand("other")?)?;
    "neg", "input", |c| c.input()?.neg()?;
    "pow", "input, exponent", |c| c.input()?.pow(c.operand("exponent")?)?;
    "real", "input", |c| c.input()?.real()?;
    "reciprocal", "input", |c| c.input()?.reciprocal()?;
    "remainder", "input, other", |c| c.input()?.remainder(c.operand("other")?)?;
    "resolve_conj", "input", |c| c.input()?;
    "resolve_neg", "input", |c| c.input()?;
    "round", "input, *, decimals=0", |c| {
        c.only("decimals", "0")?;
        c.input()?.round()?
    };
    "rsqrt", "input", |c| c.input()?.rsqrt()?;
    "short", "input, *, memory_format=None", |c| c.input()?.to_dtype(DType::I16)?;
    "sigmoid", "input", |c| c.input()?.sigmoid()?;
    "sign", "input", |c| c.input()?.sign()?;
    "sin", "input", |c| c.input()?.sin()?;
    "sinh", "input", |c| c.input()?.sinh()?;
    "sqrt", "input", |c| c.input()?.sqrt()?;
    "square", "input", |c| c.input()?.square()?;
    "sub", "input, other, *, alpha=1", |c| c.input()?.sub(scaled(c)?.operand(c)?)?;
    "tan", "input", |c| c.input()?.tan()?;
    "tanh", "input", |c| c.input()?.tanh()?;
    "true_divide", "input, other", |c| c.input()?.div(c.operand("other")?)?;
    "trunc", "input", |c| c.input()?.trunc()?;
    "where", "input, condition, other", |c| {
        Tensor::where_(c.tensor("condition")?, c.operand("input")?, c.operand("other")?)?
    };
    "__radd__", "input, other", |c| c.input()?.add(c.operand("other")?)?;
    "__rand__", "input, other", |c| c.input()?.bitwise_and(c.operand("other")?)?;
    "__rmul__", "input, other", |c| c.input()?.mul(c.operand("other")?)?;
    "__ror__", "input, other", |c| c.input()?.bitwise_or(c.operand("other")?)?;
    "__rxor__", "input, other", |c| c.input()?.bitwise_xor(c.operand("other")?)?;
}

/// The operand of a sum or difference.
enum Scaled {
    Tensor(Tensor),
    AsItIs,
}

impl Scaled {
    fn operand<'a>(&'a self, c: &'a Call) -> Found<Operand<'a>> {
        match self {
            Self::Tensor(tensor) => Ok(tensor.into()),
            Self::AsItIs => c.operand("other"),
        }
    }
}

/// `alpha · other`.
fn scaled(c: &Call) -> Found<Scaled> {
    let alpha = c.scalar("alpha")?;
    if alpha == Scalar::Int(1) {
        return Ok(Scaled::AsItIs);
    }
    match c.operand("other")? {
        // Alpha is of the dtype that is added.
        Operand::Tensor(other) if other.dtype() == DType::Bool => {
            Ok(Scaled::Tensor(other.mul(alpha)?.to_dtype(DType::Bool)?))
        }
        Operand::Tensor(other) => Ok(Scaled::Tensor(other.mul(alpha)?)),
        Operand::Scalar(_) => missing("alpha beside a number"),
    }
}

fn divided(c: &Call) -> Found<Tensor> {
    let (input, other) = (c.input()?, c.operand("other")?);
    match c.has("rounding_mode") {
        false => Ok(input.div(other)?),
        true => match c.text("rounding_mode")? {
            "floor" => Ok(input.floor_divide(other)?),
            mode => missing(format!("rounding_mode={mode}")),
        },
    }
}

fn clamped(c: &Call) -> Found<Tensor> {
    let input = c.input()?;
    Ok(match (c.has("min"), c.has("max")) {
        (true, true) => input.clamp(c.operand("min")?, c.operand("max")?)?,
        (true, false) => input.maximum(c.operand("min")?)?,
        (false, true) => input.minimum(c.operand("max")?)?,
        (false, false) => return missing("a clamp without bounds"),
    })
}
