//! Random tensors.

use rustorch_ir::DType;
use rustorch_tensor::Tensor;

table! {
    "rand_like", "input, *, dtype=None, memory_format=None", |c| {
        let input = c.input()?;
        Tensor::rand(input.shape(), c.dtype_or("dtype", input.dtype())?)?
    };
    "randint", "low, high, size=None, *, dtype=None", |c| {
        let dtype = c.dtype_or("dtype", DType::I64)?;
        match c.has("size") {
            true => Tensor::randint(c.int("low")?, c.int("high")?, c.ints("size")?, dtype)?,
            false => Tensor::randint(0, c.int("low")?, c.ints("high")?, dtype)?,
        }
    };
    "randint_like", "input, low, high=None, *, dtype=None, memory_format=None", |c| {
        let (input, low) = (c.input()?, c.int("low")?);
        let dtype = c.dtype_or("dtype", input.dtype())?;
        let (low, high) = match c.maybe_int("high")? {
            Some(high) => (low, high),
            None => (0, low),
        };
        Tensor::randint(low, high, input.shape(), dtype)?
    };
    "randn", "*size, *, dtype=None", |c| {
        Tensor::randn(c.ints("size")?, c.dtype_or("dtype", DType::F32)?)?
    };
    "randn_like", "input, *, dtype=None, memory_format=None", |c| {
        let input = c.input()?;
        Tensor::randn(input.shape(), c.dtype_or("dtype", input.dtype())?)?
    };
}
