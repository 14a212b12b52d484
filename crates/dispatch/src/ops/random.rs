//! Random tensors.

use rustorch_ir::DType;
use rustorch_tensor::Tensor;

table! {
    "bernoulli", "input", |c| Tensor::bernoulli(c.input()?)?;
    "cauchy", "input, median=0, sigma=1", |c| {
        let mut x = c.copied()?;
        x.cauchy_(c.operand("median")?, c.operand("sigma")?)?.clone()
    };
    "exponential", "input, lambd=1", |c| {
        let mut x = c.copied()?;
        x.exponential_(c.operand("lambd")?)?.clone()
    };
    "geometric", "input, p", |c| {
        let mut x = c.copied()?;
        x.geometric_(c.operand("p")?)?.clone()
    };
    "log_normal", "input, mean=1, std=2", |c| {
        let mut x = c.copied()?;
        x.log_normal_(c.operand("mean")?, c.operand("std")?)?.clone()
    };
    "multinomial", "input, num_samples, replacement=False", |c| {
        Tensor::multinomial(c.input()?, c.int("num_samples")?, c.bool("replacement")?)?
    };
    "normal", "mean, std=1", |c| Tensor::normal(c.operand("mean")?, c.operand("std")?)?;
    "normal.number_mean", "mean, std=1, size=None, *, dtype=None", |c| match c.has("size") {
        false => Tensor::normal(c.operand("mean")?, c.operand("std")?)?,
        true => {
            let mut x = Tensor::empty(c.ints("size")?, c.dtype_or("dtype", DType::F32)?)?;
            x.normal_(c.operand("mean")?, c.operand("std")?)?.clone()
        }
    };
    "normal.in_place", "input, mean=0, std=1", |c| {
        let mut x = c.copied()?;
        x.normal_(c.operand("mean")?, c.operand("std")?)?.clone()
    };
    "rand_like", "input, *, dtype=None, memory_format=None", |c| {
        let input = c.input()?;
        input.rand_like_with(c.dtype_or("dtype", input.dtype())?)?
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
        input.randint_like_with(low, high, dtype)?
    };
    "randn", "*size, *, dtype=None", |c| {
        Tensor::randn(c.ints("size")?, c.dtype_or("dtype", DType::F32)?)?
    };
    "randn_like", "input, *, dtype=None, memory_format=None", |c| {
        let input = c.input()?;
        input.randn_like_with(c.dtype_or("dtype", input.dtype())?)?
    };
    "uniform", "input, from=0, to=1", |c| {
        let mut x = c.copied()?;
        x.uniform_(c.operand("from")?, c.operand("to")?)?.clone()
    };
}
