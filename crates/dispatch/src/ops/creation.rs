//! New tensors.

use num_complex::Complex;
use rustorch_ir::{DType, Scalar};
use rustorch_tensor::{Operand, Tensor, windows};

use crate::call::{Call, Called, missing};
use crate::value::Value;

table! {
    "arange", "start, end=None, step=1, *, dtype=None", |c| ranged(c)?;
    "empty", "*size, *, dtype=None, memory_format=None", |c| {
        Tensor::empty(c.ints("size")?, c.dtype_or("dtype", DType::F32)?)?
    };
    "empty_like", "input, *, dtype=None, memory_format=None", |c| {
        let input = c.input()?;
        input.empty_like_with(c.dtype_or("dtype", input.dtype())?)?
    };
    "empty_permuted", "size, physical_layout, *, dtype=None", |c| {
        let dtype = c.dtype_or("dtype", DType::F32)?;
        Tensor::empty_permuted(c.ints("size")?, c.ints::<isize>("physical_layout")?, dtype)?
    };
    "empty_strided", "size, stride, *, dtype=None", |c| {
        let dtype = c.dtype_or("dtype", DType::F32)?;
        Tensor::empty_strided(c.ints("size")?, c.ints("stride")?, dtype)?
    };
    "eye", "n, m=None, *, dtype=None", |c| {
        let n = c.int("n")?;
        let m = c.maybe_int("m")?.unwrap_or(n);
        Tensor::eye_of([n, m], c.dtype_or("dtype", DType::F32)?)?
    };
    "fill", "input, value", |c| c.input()?.fill(c.operand("value")?)?;
    "full", "size, fill_value, *, dtype=None", |c| {
        Tensor::full(c.ints("size")?, c.scalar("fill_value")?, c.dtype_or("dtype", DType::F32)?)?
    };
    "full_like", "input, fill_value, *, dtype=None", |c| {
        let input = c.input()?;
        input.full_like_with(c.scalar("fill_value")?, c.dtype_or("dtype", input.dtype())?)?
    };
    "linalg.vander", "x, *, N=None", |c| {
        let columns: Option<usize> = c.maybe_int("N")?;
        c.input()?.vander(columns, true)?
    };
    "linspace", "start, end, steps, *, dtype=None", |c| {
        let [start, end] = ends(c)?;
        Tensor::linspace(start, end, c.int("steps")?, spaced_dtype(c, [start, end])?)?
    };
    "logspace", "start, end, steps, base=10, *, dtype=None", |c| {
        let ([start, end], base) = (ends(c)?, c.float("base")?);
        let dtype = spaced_dtype(c, [start, end])?;
        Tensor::logspace(start, end, c.int("steps")?, base, dtype)?
    };
    "new_empty", "input, size, *, dtype=None", |c| {
        let dtype = c.dtype_or("dtype", c.input()?.dtype())?;
        Tensor::empty(c.ints("size")?, dtype)?
    };
    "new_empty_strided", "input, size, stride, *, dtype=None", |c| {
        let input = c.input_as("dtype")?;
        input.new_empty_strided(c.ints("size")?, c.ints("stride")?)?
    };
    "new_full", "input, size, fill_value, *, dtype=None", |c| {
        let dtype = c.dtype_or("dtype", c.input()?.dtype())?;
        Tensor::full(c.ints("size")?, c.scalar("fill_value")?, dtype)?
    };
    "new_ones", "input, size, *, dtype=None", |c| {
        Tensor::ones(c.ints("size")?, c.dtype_or("dtype", c.input()?.dtype())?)?
    };
    "new_zeros", "input, size, *, dtype=None", |c| {
        Tensor::zeros(c.ints("size")?, c.dtype_or("dtype", c.input()?.dtype())?)?
    };
    "ones", "*size, *, dtype=None", |c| {
        Tensor::ones(c.ints("size")?, c.dtype_or("dtype", DType::F32)?)?
    };
    "ones_like", "input, *, dtype=None, memory_format=None", |c| {
        let input = c.input()?;
        input.ones_like_with(c.dtype_or("dtype", input.dtype())?)?
    };
    "scalar_tensor", "s, *, dtype=None", |c| {
        Tensor::scalar(c.scalar("s")?, c.dtype_or("dtype", DType::F32)?)?
    };
    "signal.windows.bartlett", "M, *, sym=True, dtype=None", |c| {
        windows::bartlett(c.int("M")?, c.bool("sym")?, float(c)?)?
    };
    "signal.windows.blackman", "M, *, sym=True, dtype=None", |c| {
        windows::blackman(c.int("M")?, c.bool("sym")?, float(c)?)?
    };
    "signal.windows.cosine", "M, *, sym=True, dtype=None", |c| {
        windows::cosine(c.int("M")?, c.bool("sym")?, float(c)?)?
    };
    "signal.windows.exponential", "M, *, center=None, tau=1.0, sym=True, dtype=None", |c| {
        let (center, tau) = (c.maybe_float("center")?, c.float("tau")?);
        windows::exponential(c.int("M")?, center, tau, c.bool("sym")?, float(c)?)?
    };
    "signal.windows.gaussian", "M, *, std=1.0, sym=True, dtype=None", |c| {
        windows::gaussian(c.int("M")?, c.float("std")?, c.bool("sym")?, float(c)?)?
    };
    "signal.windows.general_cosine", "M, *, a, sym=True, dtype=None", |c| {
        windows::general_cosine(c.int("M")?, &weights(c)?, c.bool("sym")?, float(c)?)?
    };
    "signal.windows.general_hamming", "M, *, alpha=0.54, sym=True, dtype=None", |c| {
        windows::general_hamming(c.int("M")?, c.float("alpha")?, c.bool("sym")?, float(c)?)?
    };
    "signal.windows.hamming", "M, *, alpha=0.54, sym=True, dtype=None", |c| {
        windows::hamming(c.int("M")?, c.float("alpha")?, c.bool("sym")?, float(c)?)?
    };
    "signal.windows.hann", "M, *, sym=True, dtype=None", |c| {
        windows::hann(c.int("M")?, c.bool("sym")?, float(c)?)?
    };
    "signal.windows.kaiser", "M, *, beta=12.0, sym=True, dtype=None", |c| {
        windows::kaiser(c.int("M")?, c.float("beta")?, c.bool("sym")?, float(c)?)?
    };
    "signal.windows.nuttall", "M, *, sym=True, dtype=None", |c| {
        windows::nuttall(c.int("M")?, c.bool("sym")?, float(c)?)?
    };
    "tril_indices", "row, col, offset=0, *, dtype=None", |c| {
        Tensor::tril_indices(c.int("row")?, c.int("col")?, c.int::<isize>("offset")?)?
            .to_dtype(c.dtype_or("dtype", DType::I64)?)?
    };
    "triu_indices", "row, col, offset=0, *, dtype=None", |c| {
        Tensor::triu_indices(c.int("row")?, c.int("col")?, c.int::<isize>("offset")?)?
            .to_dtype(c.dtype_or("dtype", DType::I64)?)?
    };
    "zero_", "input", |c| {
        let mut x = c.copied()?;
        x.zero_()?.clone()
    };
    "zeros", "*size, *, dtype=None", |c| {
        Tensor::zeros(c.ints("size")?, c.dtype_or("dtype", DType::F32)?)?
    };
    "zeros_like", "input, *, dtype=None, memory_format=None", |c| {
        let input = c.input()?;
        input.zeros_like_with(c.dtype_or("dtype", input.dtype())?)?
    };
}

/// `arange(end)` or `arange(start, end, step)`; of integers `i64` by itself.
fn ranged(c: &Call) -> Called<Tensor> {
    let (start, end) = match c.has("end") {
        true => (c.scalar("start")?, c.scalar("end")?),
        false => (Scalar::Int(0), c.scalar("start")?),
    };
    let step = c.scalar("step")?;
    let is_whole = [start, end, step].iter().all(|x| matches!(x, Scalar::Int(_)));
    let default = if is_whole { DType::I64 } else { DType::F32 };
    Ok(Tensor::arange_with(start, end, step, c.dtype_or("dtype", default)?)?)
}

/// The ends of a line: numbers, or tensors of one.
fn ends(c: &Call) -> Called<[Scalar; 2]> {
    let number = |name| -> Called<Scalar> {
        Ok(match c.operand(name)? {
            Operand::Scalar(number) => number,
            Operand::Tensor(t) if t.dtype().is_complex() => {
                t.to_dtype(DType::Complex128)?.to_scalar::<Complex<f64>>()?.into()
            }
            Operand::Tensor(t) => t.to_dtype(DType::F64)?.to_scalar::<f64>()?.into(),
        })
    };
    Ok([number("start")?, number("end")?])
}

/// Complex for complex ends, else `f32`, unless a dtype is asked for.
fn spaced_dtype(c: &Call, ends: [Scalar; 2]) -> Called<DType> {
    let is_complex = ends.iter().any(|end| matches!(end, Scalar::Complex(..)));
    c.dtype_or("dtype", if is_complex { DType::Complex64 } else { DType::F32 })
}

fn float(c: &Call) -> Called<DType> {
    c.dtype_or("dtype", DType::F32)
}

fn weights(c: &Call) -> Called<Vec<f64>> {
    let value = c.value("a")?;
    let number = |value: &Value| match *value {
        Value::Float(x) => Some(x),
        Value::Int(x) => Some(x as f64),
        _ => None,
    };
    let weights = value.parts().unwrap_or_default().iter().map(number).collect::<Option<_>>();
    weights.map_or_else(|| missing(format!("a={value}")), Ok)
}
