//! Functions of each element.

use num_complex::Complex;
use rustorch_ir::{DType, Scalar};
use rustorch_tensor::{Operand, RoundingMode, Tensor};

use crate::call::{Call, Called, missing};
use crate::value::Value;

table! {
    "abs", "input", |c| c.input()?.abs()?;
    "acos", "input", |c| c.input()?.acos()?;
    "acosh", "input", |c| c.input()?.acosh()?;
    "add", "input, other, *, alpha=1", |c| c.input()?.add(scaled(c)?.operand(c)?)?;
    "addcdiv", "input, tensor1, tensor2, *, value=1", |c| {
        c.input()?.addcdiv(c.tensor("tensor1")?, c.tensor("tensor2")?, c.scalar("value")?)?
    };
    "addcmul", "input, tensor1, tensor2, *, value=1", |c| {
        c.input()?.addcmul(c.tensor("tensor1")?, c.tensor("tensor2")?, c.scalar("value")?)?
    };
    "angle", "input", |c| c.input()?.angle()?;
    "asin", "input", |c| c.input()?.asin()?;
    "asinh", "input", |c| c.input()?.asinh()?;
    "atan", "input", |c| c.input()?.atan()?;
    "atan2", "input, other", |c| c.input()?.atan2(c.operand("other")?)?;
    "atanh", "input", |c| c.input()?.atanh()?;
    "bfloat16", "input, *, memory_format=None", |c| c.input()?.to_dtype(DType::BF16)?;
    "bitwise_and", "input, other", |c| c.input()?.bitwise_and(c.operand("other")?)?;
    "bitwise_left_shift", "input, other", |c| c.input()?.bitwise_left_shift(c.operand("other")?)?;
    "bitwise_not", "input", |c| c.input()?.bitwise_not()?;
    "bitwise_or", "input, other", |c| c.input()?.bitwise_or(c.operand("other")?)?;
    "bitwise_right_shift", "input, other", |c| c.input()?.bitwise_right_shift(c.operand("other")?)?;
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
    "clamp_max", "input, max", |c| c.input()?.clamp_max(c.operand("max")?)?;
    "clamp_min", "input, min", |c| c.input()?.clamp_min(c.operand("min")?)?;
    "clone", "input, *, memory_format=None", |c| c.input()?.copy()?;
    "complex", "real, imag", |c| Tensor::complex(c.tensor("real")?, c.tensor("imag")?)?;
    "conj", "input", |c| c.input()?.conj()?;
    "conj_physical", "input", |c| c.input()?.conj()?;
    "copysign", "input, other", |c| c.input()?.copysign(c.operand("other")?)?;
    "cos", "input", |c| c.input()?.cos()?;
    "cosh", "input", |c| c.input()?.cosh()?;
    "deg2rad", "input", |c| c.input()?.deg2rad()?;
    "digamma", "input", |c| c.input()?.digamma()?;
    "dist", "input, other, p=2", |c| c.input()?.dist(c.tensor("other")?, c.float("p")?)?;
    "div", "input, other, *, rounding_mode=None", |c| divided(c)?;
    "double", "input, *, memory_format=None", |c| c.input()?.to_dtype(DType::F64)?;
    "eq", "input, other", |c| c.input()?.eq(c.operand("other")?)?;
    "erf", "input", |c| c.input()?.erf()?;
    "erfc", "input", |c| c.input()?.erfc()?;
    "erfinv", "input", |c| c.input()?.erfinv()?;
    "exp", "input", |c| c.input()?.exp()?;
    "exp2", "input", |c| c.input()?.exp2()?;
    "expm1", "input", |c| c.input()?.expm1()?;
    "float", "input, *, memory_format=None", |c| c.input()?.to_dtype(DType::F32)?;
    "float_power", "input, other", |c| c.input()?.float_power(c.operand("other")?)?;
    "floor", "input", |c| c.input()?.floor()?;
    "floor_divide", "input, other", |c| c.input()?.floor_divide(c.operand("other")?)?;
    "fmax", "input, other", |c| c.input()?.fmax(c.operand("other")?)?;
    "fmin", "input, other", |c| c.input()?.fmin(c.operand("other")?)?;
    "fmod", "input, other", |c| c.input()?.fmod(c.operand("other")?)?;
    "frac", "input", |c| c.input()?.frac()?;
    "frexp", "input", |c| c.input()?.frexp()?;
    "gcd", "input, other", |c| c.input()?.gcd(c.operand("other")?)?;
    "ge", "input, other", |c| c.input()?.ge(c.operand("other")?)?;
    "gt", "input, other", |c| c.input()?.gt(c.operand("other")?)?;
    "half", "input, *, memory_format=None", |c| c.input()?.to_dtype(DType::F16)?;
    "heaviside", "input, other", |c| c.input()?.heaviside(c.tensor("other")?)?;
    "hypot", "input, other", |c| c.input()?.hypot(c.operand("other")?)?;
    "i0", "input", |c| c.input()?.i0()?;
    "igamma", "input, other", |c| c.input()?.igamma(c.operand("other")?)?;
    "igammac", "input, other", |c| c.input()?.igammac(c.operand("other")?)?;
    "imag", "input", |c| c.input()?.imag()?;
    "int", "input, *, memory_format=None", |c| c.input()?.to_dtype(DType::I32)?;
    "isclose", "input, other, rtol=1e-5, atol=1e-8, equal_nan=False", |c| {
        c.input()?.isclose(c.tensor("other")?, c.float("rtol")?, c.float("atol")?, c.bool("equal_nan")?)?
    };
    "isfinite", "input", |c| c.input()?.isfinite()?;
    "isinf", "input", |c| c.input()?.isinf()?;
    "isnan", "input", |c| c.input()?.isnan()?;
    "isneginf", "input", |c| c.input()?.isneginf()?;
    "isposinf", "input", |c| c.input()?.isposinf()?;
    "isreal", "input", |c| c.input()?.isreal()?;
    "item", "input", |c| number(c.input()?)?;
    "lcm", "input, other", |c| c.input()?.lcm(c.operand("other")?)?;
    "ldexp", "input, other", |c| c.input()?.ldexp(c.tensor("other")?)?;
    "le", "input, other", |c| c.input()?.le(c.operand("other")?)?;
    "lerp", "input, end, weight", |c| c.input()?.lerp(c.tensor("end")?, c.operand("weight")?)?;
    "lgamma", "input", |c| c.input()?.lgamma()?;
    "log", "input", |c| c.input()?.log()?;
    "log10", "input", |c| c.input()?.log10()?;
    "log1p", "input", |c| c.input()?.log1p()?;
    "log2", "input", |c| c.input()?.log2()?;
    "logaddexp", "input, other", |c| c.input()?.logaddexp(c.operand("other")?)?;
    "logaddexp2", "input, other", |c| c.input()?.logaddexp2(c.operand("other")?)?;
    "logical_and", "input, other", |c| c.input()?.logical_and(c.tensor("other")?)?;
    "logical_not", "input", |c| c.input()?.logical_not()?;
    "logical_or", "input, other", |c| c.input()?.logical_or(c.tensor("other")?)?;
    "logical_xor", "input, other", |c| c.input()?.logical_xor(c.tensor("other")?)?;
    "logit", "input, eps=None", |c| c.input()?.logit(c.maybe_float("eps")?)?;
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
    "mvlgamma", "input, p", |c| c.input()?.mvlgamma(c.int("p")?)?;
    "nan_to_num", "input, nan=None, posinf=None, neginf=None", |c| {
        let nan = c.maybe_float("nan")?.unwrap_or(0.0);
        c.input()?.nan_to_num(nan, c.maybe_float("posinf")?, c.maybe_float("neginf")?)?
    };
    "ne", "input, other", |c| c.input()?.ne(c.operand("other")?)?;
    "neg", "input", |c| c.input()?.neg()?;
    "nextafter", "input, other", |c| c.input()?.nextafter(c.operand("other")?)?;
    "polar", "abs, angle", |c| Tensor::polar(c.tensor("abs")?, c.tensor("angle")?)?;
    "polygamma", "input, n", |c| c.input()?.polygamma(c.int("n")?)?;
    "positive", "input", |c| c.input()?.positive()?;
    "pow", "input, exponent", |c| c.input()?.pow(c.operand("exponent")?)?;
    "rad2deg", "input", |c| c.input()?.rad2deg()?;
    "real", "input", |c| c.input()?.real()?;
    "reciprocal", "input", |c| c.input()?.reciprocal()?;
    "remainder", "input, other", |c| c.input()?.remainder(c.operand("other")?)?;
    "resolve_conj", "input", |c| c.input()?;
    "resolve_neg", "input", |c| c.input()?;
    "round", "input, *, decimals=0", |c| c.input()?.round_decimals(c.int("decimals")?)?;
    "rsqrt", "input", |c| c.input()?.rsqrt()?;
    "rsub", "input, other, *, alpha=1", |c| {
        let scaled = c.input()?.mul(c.scalar("alpha")?)?;
        scaled.rsub(c.operand("other")?)?
    };
    "sgn", "input", |c| c.input()?.sgn()?;
    "short", "input, *, memory_format=None", |c| c.input()?.to_dtype(DType::I16)?;
    "sigmoid", "input", |c| c.input()?.sigmoid()?;
    "sign", "input", |c| c.input()?.sign()?;
    "signbit", "input", |c| c.input()?.signbit()?;
    "sin", "input", |c| c.input()?.sin()?;
    "sinc", "input", |c| c.input()?.sinc()?;
    "sinh", "input", |c| c.input()?.sinh()?;
    "sqrt", "input", |c| c.input()?.sqrt()?;
    "square", "input", |c| c.input()?.square()?;
    "sub", "input, other, *, alpha=1", |c| c.input()?.sub(scaled(c)?.operand(c)?)?;
    "tan", "input", |c| c.input()?.tan()?;
    "tanh", "input", |c| c.input()?.tanh()?;
    "true_divide", "input, other", |c| c.input()?.true_divide(c.operand("other")?)?;
    "to", "input, *target, *, copy=False, memory_format=None", |c| moved(c)?;
    "trunc", "input", |c| c.input()?.trunc()?;
    "view_as_complex", "input", |c| c.input()?.view_as_complex()?;
    "view_as_real", "input", |c| c.input()?.view_as_real()?;
    "where", "input, condition, other", |c| {
        Tensor::where_(c.tensor("condition")?, c.operand("input")?, c.operand("other")?)?
    };
    "xlogy", "input, other", |c| c.input()?.xlogy(c.operand("other")?)?;
    "__radd__", "input, other", |c| c.input()?.add(c.operand("other")?)?;
    "__rand__", "input, other", |c| c.input()?.bitwise_and(c.operand("other")?)?;
    "__rdiv__", "input, other", |c| c.input()?.reciprocal()?.mul(c.operand("other")?)?;
    "__rmod__", "input, other", |c| first(c)?.remainder(c.input()?)?;
    "__rmul__", "input, other", |c| c.input()?.mul(c.operand("other")?)?;
    "__ror__", "input, other", |c| c.input()?.bitwise_or(c.operand("other")?)?;
    "__rpow__", "input, other", |c| first(c)?.pow(c.input()?)?;
    "__rsub__", "input, other", |c| c.input()?.rsub(c.operand("other")?)?;
    "__rxor__", "input, other", |c| c.input()?.bitwise_xor(c.operand("other")?)?;
}

/// The operand of a sum or difference.
enum Scaled {
    Tensor(Tensor),
    AsItIs,
}

impl Scaled {
    fn operand<'a>(&'a self, c: &'a Call) -> Called<Operand<'a>> {
        match self {
            Self::Tensor(tensor) => Ok(tensor.into()),
            Self::AsItIs => c.operand("other"),
        }
    }
}

/// `alpha · other`.
fn scaled(c: &Call) -> Called<Scaled> {
    let alpha = c.scalar("alpha")?;
    if alpha == Scalar::Int(1) {
        return Ok(Scaled::AsItIs);
    }
    match c.operand("other")? {
        // The sum's dtype is alpha's, too.
        Operand::Tensor(other) => {
            let dtype = c.input()?.add(other)?.dtype();
            Ok(Scaled::Tensor(other.to_dtype(dtype)?.mul(alpha)?.to_dtype(dtype)?))
        }
        Operand::Scalar(_) => missing("alpha beside a number"),
    }
}

fn divided(c: &Call) -> Called<Tensor> {
    let (input, other) = (c.input()?, c.operand("other")?);
    match c.has("rounding_mode") {
        false => Ok(input.div(other)?),
        true => match c.text("rounding_mode")? {
            "floor" => Ok(input.div_mode(other, RoundingMode::Floor)?),
            "trunc" => Ok(input.div_mode(other, RoundingMode::Trunc)?),
            mode => missing(format!("rounding_mode={mode}")),
        },
    }
}

fn clamped(c: &Call) -> Called<Tensor> {
    let input = c.input()?;
    Ok(match (c.has("min"), c.has("max")) {
        (true, true) => input.clamp(c.operand("min")?, c.operand("max")?)?,
        (true, false) => input.clamp_min(c.operand("min")?)?,
        (false, true) => input.clamp_max(c.operand("max")?)?,
        (false, false) => return missing("a clamp without bounds"),
    })
}

/// First operand of Python's operators.
fn first(c: &Call) -> Called<Tensor> {
    let double = |dtype, other| if c.input().is_ok_and(|x| x.dtype() == dtype) { dtype } else { other };
    let (held, dtype) = match c.operand("other")? {
        Operand::Tensor(other) => return Ok(other.clone()),
        Operand::Scalar(Scalar::Int(_)) => (DType::I64, DType::I64),
        Operand::Scalar(Scalar::UInt(_)) => (DType::U64, DType::U64),
        Operand::Scalar(Scalar::Float(_)) => (DType::F64, double(DType::F64, DType::F32)),
        Operand::Scalar(Scalar::Complex(..)) => {
            (DType::Complex128, double(DType::Complex128, DType::Complex64))
        }
    };
    // A number beyond single precision becomes infinite, as an operand of PyTorch's does.
    Ok(Tensor::scalar(c.scalar("other")?, held)?.to_dtype(dtype)?)
}

/// `to` of a device, a dtype, both, or another tensor; whether to wait or to copy says nothing here.
fn moved(c: &Call) -> Called<Tensor> {
    let mut x = c.input()?.clone();
    for target in c.value("target")?.parts().unwrap_or_default() {
        x = match target {
            Value::DType(dtype) => x.to(*dtype)?,
            Value::Tensor(other) => x.to(other)?,
            // A call is on the device that is replayed on.
            Value::Text(_) | Value::Bool(_) => x,
            other => return missing(format!("to {other}")),
        };
    }
    Ok(x)
}

fn number(x: &Tensor) -> Called<Value> {
    Ok(match x.dtype() {
        DType::Bool => Value::Bool(x.to_scalar()?),
        dtype if dtype.is_complex() => {
            let z: Complex<f64> = x.to_dtype(DType::Complex128)?.to_scalar()?;
            Value::Complex(z.re, z.im)
        }
        dtype if dtype.is_float() || dtype.is_float8() => {
            Value::Float(x.to_dtype(DType::F64)?.to_scalar()?)
        }
        _ => Value::Int(x.to_dtype(DType::I64)?.to_scalar()?),
    })
}
