//! New tensors.

use rustorch_ir::{DType, Scalar};
use rustorch_tensor::Tensor;

use crate::call::{Call, Found};

table! {
    "arange", "start, end=None, step=1, *, dtype=None", |c| ranged(c)?;
    "eye", "n, m=None, *, dtype=None", |c| {
        if c.has("m") && c.int::<i64>("m")? != c.int::<i64>("n")? {
            return crate::call::missing("m");
        }
        Tensor::eye(c.int("n")?, c.dtype_or("dtype", DType::F32)?)?
    };
    "full", "size, fill_value, *, dtype=None", |c| {
        Tensor::full(c.ints("size")?, c.scalar("fill_value")?, c.dtype_or("dtype", DType::F32)?)?
    };
    "full_like", "input, fill_value, *, dtype=None", |c| {
        c.input_as("dtype")?.full_like(c.scalar("fill_value")?)?
    };
    "linspace", "start, end, steps, *, dtype=None", |c| {
        let dtype = c.dtype_or("dtype", DType::F32)?;
        Tensor::linspace(c.float("start")?, c.float("end")?, c.int("steps")?, dtype)?
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
    "ones_like", "input, *, dtype=None, memory_format=None", |c| c.input_as("dtype")?.ones_like()?;
    "scalar_tensor", "s, *, dtype=None", |c| {
        Tensor::scalar(c.scalar("s")?, c.dtype_or("dtype", DType::F32)?)?
    };
    "zeros", "*size, *, dtype=None", |c| {
        Tensor::zeros(c.ints("size")?, c.dtype_or("dtype", DType::F32)?)?
    };
    "zeros_like", "input, *, dtype=None, memory_format=None", |c| {
        c.input_as("dtype")?.zeros_like()?
    };
}

/// `arange(end)` or `arange(start, end, step)`; of integers `i64` by itself.
fn ranged(c: &Call) -> Found<Tensor> {
    let (start, end) = match c.has("end") {
        true => (c.scalar("start")?, c.scalar("end")?),
        false => (Scalar::Int(0), c.scalar("start")?),
    };
    let step = c.scalar("step")?;
    let is_whole = [start, end, step].iter().all(|x| matches!(x, Scalar::Int(_)));
    let default = if is_whole { DType::I64 } else { DType::F32 };
    Ok(Tensor::arange(start, end, step, c.dtype_or("dtype", default)?)?)
}
